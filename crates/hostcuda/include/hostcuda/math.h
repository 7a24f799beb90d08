// Device mathematics. Elementary functions of float are branch free, so that the loop over a block's
// threads vectorises; NaN and infinities are kept. Measured errors are in docs/concepts/cpu-device.md;
// coefficients are minimax fits made for this file.
#pragma once
#include <math.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hostcuda/convert.h"

#ifndef HOSTCUDA_INLINE
#define HOSTCUDA_INLINE static inline __attribute__((always_inline))
#endif

HOSTCUDA_INLINE float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }
HOSTCUDA_INLINE int __float_as_int(float f) { int i; memcpy(&i, &f, 4); return i; }
HOSTCUDA_INLINE float __uint_as_float(unsigned i) { float f; memcpy(&f, &i, 4); return f; }
HOSTCUDA_INLINE unsigned __float_as_uint(float f) { unsigned i; memcpy(&i, &f, 4); return i; }
HOSTCUDA_INLINE double __longlong_as_double(long long i) { double f; memcpy(&f, &i, 8); return f; }
HOSTCUDA_INLINE long long __double_as_longlong(double f) { long long i; memcpy(&i, &f, 8); return i; }

namespace hostcuda {
// a / b and a % b for whatever types they have. 32-bit integers go through double, which is exact:
// |a / b| < 2^31, and a quotient that is not whole is at least 2^-31 |a / b| away from a whole one.
// Division by zero gives some number instead of a trap, as on a GPU.
template <class A, class B>
__attribute__((always_inline)) inline auto quotient(A a, B b) {
  if constexpr (std::is_integral<A>::value && std::is_integral<B>::value && sizeof(A) <= 4 && sizeof(B) <= 4) {
    using T = decltype(a / b);
    if (__builtin_constant_p(b)) return (T)((T)a / (T)b);
    const double q = (double)(T)a / (double)(T)b;
    return std::is_signed<T>::value ? (T)(int)q : (T)(int64_t)q;
  } else {
    return a / b;
  }
}
template <class A, class B>
__attribute__((always_inline)) inline auto remainder(A a, B b) {
  if constexpr (std::is_integral<A>::value && std::is_integral<B>::value && sizeof(A) <= 4 && sizeof(B) <= 4) {
    using T = decltype(a % b);
    return (T)((T)a - quotient((T)a, (T)b) * (T)b);
  } else {
    return a % b;
  }
}
namespace math {
// CUDA's fmaxf and fminf: the other operand when one is NaN.
HOSTCUDA_INLINE float fmaxf(float a, float b) { return a > b || b != b ? a : b; }
HOSTCUDA_INLINE float fminf(float a, float b) { return a < b || b != b ? a : b; }
HOSTCUDA_INLINE double fmax(double a, double b) { return a > b || b != b ? a : b; }
HOSTCUDA_INLINE double fmin(double a, double b) { return a < b || b != b ? a : b; }
HOSTCUDA_INLINE float fmax(float a, float b) { return fmaxf(a, b); }
HOSTCUDA_INLINE float fmin(float a, float b) { return fminf(a, b); }
template <class A, class B>
__attribute__((always_inline)) inline constexpr auto max(A a, B b) {
  using T = std::conditional_t<std::is_same<A, B>::value, A, std::common_type_t<A, B>>;
  if constexpr (std::is_floating_point<T>::value)
    return (T)a > (T)b || b != b ? (T)a : (T)b;
  else
    return (T)a > (T)b ? (T)a : (T)b;
}
template <class A, class B>
__attribute__((always_inline)) inline constexpr auto min(A a, B b) {
  using T = std::conditional_t<std::is_same<A, B>::value, A, std::common_type_t<A, B>>;
  if constexpr (std::is_floating_point<T>::value)
    return (T)a < (T)b || b != b ? (T)a : (T)b;
  else
    return (T)a < (T)b ? (T)a : (T)b;
}

// x = n log 2 + r, |r| <= log(2)/2; returns exp(r) - 1.
HOSTCUDA_INLINE float reduced_expm1(float x, float* n) {
  float k = __builtin_rintf(x * 1.44269504f);
  float r = x - k * 0.693359375f;
  r = r + k * 2.12194440e-4f;
  float p = 1.395171916e-03f;
  p = p * r + 8.369598221e-03f;
  p = p * r + 4.166618726e-02f;
  p = p * r + 1.666651289e-01f;
  p = p * r + 5.000000101e-01f;
  *n = k;
  return p * (r * r) + r;
}
// Subnormal results included. Where there is nothing left (a masked score), it is not computed:
// arithmetic that underflows takes some processors 150 cycles an element.
HOSTCUDA_INLINE float expf(float x) {
  float c = x < -104.f ? 0.f : x;
  c = c > 89.f ? 89.f : c;
  float n, p = reduced_expm1(c, &n) + 1.f;
  int k = (int)n, half = k >> 1;
  float y = p * __int_as_float((half + 127) << 23) * __int_as_float((k - half + 127) << 23);
  return x < -104.f ? 0.f : y;
}
HOSTCUDA_INLINE float expm1f(float x) {
  float c = x < -18.f ? -18.f : x;
  c = c > 89.f ? 89.f : c;
  float n, p = reduced_expm1(c, &n);
  float s = __int_as_float(((int)n + 126) << 23);
  return 2.f * (s * p + (s - 0.5f));
}
HOSTCUDA_INLINE float exp2f(float x) {
  float c = x < -150.f ? 0.f : x;
  c = c > 129.f ? 129.f : c;
  float k = __builtin_rintf(c);
  float n, p = reduced_expm1((c - k) * 0.693147181f, &n) + 1.f;
  int e = (int)k + (int)n, half = e >> 1;
  float y = p * __int_as_float((half + 127) << 23) * __int_as_float((e - half + 127) << 23);
  return x < -150.f ? 0.f : y;
}
HOSTCUDA_INLINE float logf(float x) {
  float y = x < 1.17549435e-38f ? x * 8388608.f : x;
  float bias = x < 1.17549435e-38f ? -23.f : 0.f;
  int i = __float_as_int(y) - 0x3f3504f3;
  float e = (float)(i >> 23) + bias;
  float f = __int_as_float((i & 0x7fffff) + 0x3f3504f3) - 1.f;
  float q = 6.746638278e-02f;
  q = q * f - 1.167565122e-01f;
  q = q * f + 1.188816297e-01f;
  q = q * f - 1.240558906e-01f;
  q = q * f + 1.421955228e-01f;
  q = q * f - 1.666799584e-01f;
  q = q * f + 2.000211866e-01f;
  q = q * f - 2.500000960e-01f;
  q = q * f + 3.333331260e-01f;
  float s = f * f;
  float r = e * -2.12194440e-4f + (f * s * q - 0.5f * s);
  r = r + f + e * 0.693359375f;
  r = x == __builtin_inff() ? x : r;
  r = x == 0.f ? -__builtin_inff() : r;
  return x >= 0.f ? r : __builtin_nanf("");
}
HOSTCUDA_INLINE float log2f(float x) { return logf(x) * 1.44269504f; }
HOSTCUDA_INLINE float log10f(float x) { return logf(x) * 0.434294482f; }
HOSTCUDA_INLINE float log1pf(float x) {
  float u = 1.f + x;
  float d = u - 1.f;
  float r = logf(u) + (x - d) / u;
  r = u == __builtin_inff() ? u : r;
  return d == 0.f ? x : u == 0.f ? -__builtin_inff() : r;
}
HOSTCUDA_INLINE float tanhf(float x) {
  float c = x < -9.1f ? -9.1f : x;
  c = c > 9.1f ? 9.1f : c;
  float e = expm1f(2.f * c);
  return e / (e + 2.f);
}
HOSTCUDA_INLINE float erff(float x) {
  float t = __builtin_fabsf(x), s = t * t;
  float p = 8.313721018e-05f;
  p = p * s - 8.129278974e-04f;
  p = p * s + 5.199840992e-03f;
  p = p * s - 2.685891461e-02f;
  p = p * s + 1.128368670e-01f;
  p = p * s - 3.761263316e-01f;
  p = p * s + 1.283791666e-01f;
  p = p * t + t;
  float c = t > 3.95f ? 3.95f : t;
  float q = 1.152227955e-05f;
  q = q * c - 3.256525998e-04f;
  q = q * c + 3.653763669e-03f;
  q = q * c - 2.378534627e-02f;
  q = q * c + 1.062631451e-01f;
  q = q * c + 6.351359128e-01f;
  q = q * c + 1.286521624e-01f;
  q = 1.f - expf(-(q * c + c));
  float r = t < 0.93f ? p : q;
  r = x != x ? x : r;
  return __builtin_copysignf(r, x);
}
HOSTCUDA_INLINE float roundf(float x) {
  return __builtin_copysignf(__builtin_truncf(__builtin_fabsf(x) + 0.49999997f), x);
}
HOSTCUDA_INLINE float powf(float x, float y) { return ::powf(x, y); }

// As in CUDA, the names without f are overloaded; integers go to double.
#define HOSTCUDA_OVERLOAD(name, single)                                                    \
  HOSTCUDA_INLINE float name(float x) { return single(x); }                                \
  HOSTCUDA_INLINE double name(double x) { return ::name(x); }                              \
  template <class T, class = std::enable_if_t<std::is_integral<T>::value>>                 \
  inline double name(T x) { return ::name((double)x); }
HOSTCUDA_OVERLOAD(exp, expf)
HOSTCUDA_OVERLOAD(exp2, exp2f)
HOSTCUDA_OVERLOAD(expm1, expm1f)
HOSTCUDA_OVERLOAD(log, logf)
HOSTCUDA_OVERLOAD(log2, log2f)
HOSTCUDA_OVERLOAD(log10, log10f)
HOSTCUDA_OVERLOAD(log1p, log1pf)
HOSTCUDA_OVERLOAD(tanh, tanhf)
HOSTCUDA_OVERLOAD(erf, erff)
HOSTCUDA_OVERLOAD(round, roundf)
#undef HOSTCUDA_OVERLOAD
// The C library has these names for itself, hence the namespace.
HOSTCUDA_INLINE float __expf(float x) { return expf(x); }
HOSTCUDA_INLINE float __exp10f(float x) { return exp2f(x * 3.32192809f); }
HOSTCUDA_INLINE float exp10f(float x) { return ::powf(10.f, x); }
HOSTCUDA_INLINE float __logf(float x) { return logf(x); }
HOSTCUDA_INLINE float __log2f(float x) { return log2f(x); }
HOSTCUDA_INLINE float __log10f(float x) { return log10f(x); }
HOSTCUDA_INLINE float __powf(float x, float y) { return exp2f(y * log2f(x)); }
HOSTCUDA_INLINE float __tanhf(float x) { return tanhf(x); }
HOSTCUDA_INLINE float __sinf(float x) { return ::sinf(x); }
HOSTCUDA_INLINE float __cosf(float x) { return ::cosf(x); }
HOSTCUDA_INLINE float __tanf(float x) { return ::tanf(x); }
HOSTCUDA_INLINE void __sincosf(float x, float* s, float* c) { *s = ::sinf(x); *c = ::cosf(x); }
}  // namespace math
}  // namespace hostcuda

HOSTCUDA_INLINE float __fdividef(float a, float b) { return a / b; }
HOSTCUDA_INLINE float fdividef(float a, float b) { return a / b; }
HOSTCUDA_INLINE float rsqrtf(float x) { return 1.f / __builtin_sqrtf(x); }
HOSTCUDA_INLINE double rsqrt(double x) { return 1. / __builtin_sqrt(x); }
HOSTCUDA_INLINE float rsqrt(float x) { return rsqrtf(x); }
HOSTCUDA_INLINE float rcbrtf(float x) { return 1.f / cbrtf(x); }
HOSTCUDA_INLINE float normcdff(float x) { return 0.5f * erfcf(x * -0.70710678f); }
HOSTCUDA_INLINE double normcdf(double x) { return 0.5 * erfc(x * -0.70710678118654752); }
HOSTCUDA_INLINE float __saturatef(float x) { return x > 0.f ? (x < 1.f ? x : 1.f) : 0.f; }


// Loads and stores with cache hints are loads and stores.
#define HOSTCUDA_LOAD(name) template <class T> __attribute__((always_inline)) inline T name(const T* p) { return *p; }
#define HOSTCUDA_STORE(name) template <class T> __attribute__((always_inline)) inline void name(T* p, T v) { *p = v; }
HOSTCUDA_LOAD(__ldg) HOSTCUDA_LOAD(__ldcs) HOSTCUDA_LOAD(__ldca) HOSTCUDA_LOAD(__ldcg) HOSTCUDA_LOAD(__ldlu) HOSTCUDA_LOAD(__ldcv)
HOSTCUDA_STORE(__stcs) HOSTCUDA_STORE(__stcg) HOSTCUDA_STORE(__stwb) HOSTCUDA_STORE(__stwt)
#undef HOSTCUDA_LOAD
#undef HOSTCUDA_STORE
