//! Functions of numbers that C++ and CUDA lack, or compute differently from torch.

use super::Helper;

pub(super) const HELPERS: &[Helper] = &[
    (
        "nan_max(",
        "// Maximum that keeps NaN, as torch does.
template <typename T>
__device__ __forceinline__ T nan_max(T a, T b) {
  return a > b || a != a ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// One instruction instead of three.
__device__ __forceinline__ float nan_max(float a, float b) {
  float c;
  asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(c) : \"f\"(a), \"f\"(b));
  return c;
}
#endif
",
    ),
    (
        "nan_min(",
        "// Minimum that keeps NaN, as torch does.
template <typename T>
__device__ __forceinline__ T nan_min(T a, T b) {
  return a < b || a != a ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// One instruction instead of three.
__device__ __forceinline__ float nan_min(float a, float b) {
  float c;
  asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(c) : \"f\"(a), \"f\"(b));
  return c;
}
#endif
",
    ),
    (
        "quotient(",
        "// A division with an error of at most two units in the last place, over the full range.
__device__ __forceinline__ float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  float c;
  asm(\"div.full.f32 %0, %1, %2;\" : \"=f\"(c) : \"f\"(a), \"f\"(b));
  return c;
#else
  return a / b;
#endif
}
",
    ),
    (
        "tf32_high(",
        "// The nearest TF32 number: 10 bits of mantissa, ties away from zero.
__device__ __forceinline__ float tf32_high(float x) {
  const unsigned int bits = __float_as_uint(x);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return finite ? __uint_as_float((bits + 0x1000u) & 0xffffe000u) : x;
}
",
    ),
    (
        "tf32_low(",
        "// The nearest TF32 number of what the nearest one leaves.
__device__ __forceinline__ float tf32_low(float x) {
  const bool finite = (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
  return finite ? tf32_high(x - tf32_high(x)) : 0.0f;
}
",
    ),
    (
        "floor_div(",
        "// Integer division that rounds down.
template <typename T>
__device__ __forceinline__ T floor_div(T a, T b) {
  const T q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
",
    ),
    (
        "floor_mod(",
        "// Remainder with the divisor's sign, as in Python.
__device__ __forceinline__ float floor_mod(float a, float b) {
  const float r = fmodf(a, b);
  return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}
__device__ __forceinline__ double floor_mod(double a, double b) {
  const double r = fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}
__device__ __forceinline__ int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ int floor_mod(int a, int b) {
  return (int)floor_mod((int64_t)a, (int64_t)b);
}
",
    ),
    (
        "integer_power(",
        "template <typename T>
__device__ __forceinline__ T integer_power(T base, T exponent) {
  T result = 1;
  for (T e = exponent; e > 0; e >>= 1) {
    if (e & 1) result *= base;
    base *= base;
  }
  return result;
}
",
    ),
    (
        "arg_max(",
        "// Keeps the larger value and where it is; the first of equals, and NaN over all.
template <typename T>
__device__ __forceinline__ void arg_max(T& best, int& at, T v, int where) {
  const bool v_nan = v != v, best_nan = best != best;
  const bool equal = v == best || (v_nan && best_nan);
  const bool wins = equal ? where < at : (v_nan || (v > best && !best_nan));
  best = wins ? v : best;
  at = wins ? where : at;
}
",
    ),
    (
        "arg_min(",
        "// Keeps the smaller value and where it is; the first of equals, and NaN over all.
template <typename T>
__device__ __forceinline__ void arg_min(T& best, int& at, T v, int where) {
  const bool v_nan = v != v, best_nan = best != best;
  const bool equal = v == best || (v_nan && best_nan);
  const bool wins = equal ? where < at : (v_nan || (v < best && !best_nan));
  best = wins ? v : best;
  at = wins ? where : at;
}
",
    ),
    (
        "log_add_exp(",
        "// log(exp(a) + exp(b)) without overflow.
template <typename T>
__device__ __forceinline__ T log_add_exp(T a, T b) {
  const T high = a > b ? a : b;
  const T low = a > b ? b : a;
  // Equal infinities have no difference.
  return a == b ? a + (T)0.69314718055994530942 : high + (T)log1p(exp((double)(low - high)));
}
",
    ),
    (
        "add_exponential(",
        "// Adds exp(x - high) to a sum, where `high` is the largest x so far.
__device__ __forceinline__ void add_exponential(float& high, float& sum, float x) {
  if (x > high) {
    sum *= expf(high - x);
    high = x;
  }
  sum += x == high ? 1.0f : expf(x - high);  // equal infinities have no difference
}
",
    ),
];
