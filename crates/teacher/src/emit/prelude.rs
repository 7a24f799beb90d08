//! Device helpers, each written into a file only if its text uses it.

/// Name to look for, what it needs, and its definition. In order of definition.
const HELPERS: &[(&str, &str)] = &[
    (
        "Vec<",
        "// Neighbouring elements that move as one access of up to 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T at[N];
};
",
    ),
    (
        "load<",
        "template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load(const T* p) {
  return *reinterpret_cast<const Vec<T, N>*>(p);
}
",
    ),
    (
        "Raw<",
        "// An integer type as large as a vector, for the cache-hinted accesses.
template <int kBytes> struct Raw;
template <> struct Raw<16> { using type = uint4; };
template <> struct Raw<8> { using type = uint2; };
template <> struct Raw<4> { using type = unsigned int; };
template <> struct Raw<2> { using type = unsigned short; };
template <> struct Raw<1> { using type = unsigned char; };
",
    ),
    (
        "load_streaming<",
        "// A load of data that is read once: it should not push other data out of the cache.
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load_streaming(const T* p) {
  using R = typename Raw<sizeof(T) * N>::type;
  const R raw = __ldcs(reinterpret_cast<const R*>(p));
  return *reinterpret_cast<const Vec<T, N>*>(&raw);
}
",
    ),
    (
        "store_streaming(",
        "// A store of data that this kernel will not read again.
template <typename T, int N>
__device__ __forceinline__ void store_streaming(T* p, const Vec<T, N>& v) {
  using R = typename Raw<sizeof(T) * N>::type;
  __stcs(reinterpret_cast<R*>(p), *reinterpret_cast<const R*>(&v));
}
",
    ),
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
    (
        "LogSum<",
        "// The logarithm of a sum of exponentials: the largest exponent, and the sum relative to it.
template <typename T> struct LogSum { T high, sum; };
__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float log_of(LogSum<float> a) { return a.high + logf(a.sum); }
__device__ __forceinline__ double log_of(LogSum<double> a) { return a.high + log(a.sum); }
template <typename T>
__device__ __forceinline__ LogSum<T> lane_below(LogSum<T> value, int step) {
  value.high = __shfl_up_sync(0xffffffffu, value.high, step);
  value.sum = __shfl_up_sync(0xffffffffu, value.sum, step);
  return value;
}
template <typename T>
__device__ __forceinline__ LogSum<T> lane_value(LogSum<T> value, int lane) {
  value.high = __shfl_sync(0xffffffffu, value.high, lane);
  value.sum = __shfl_sync(0xffffffffu, value.sum, lane);
  return value;
}
",
    ),
    (
        "LogAdd>",
        "// One exponential; equal infinities have no difference.
struct LogAdd {
  template <typename T>
  __device__ __forceinline__ LogSum<T> operator()(LogSum<T> a, LogSum<T> b) const {
    const bool up = b.high > a.high;
    const T fall = up ? a.high - b.high : b.high - a.high;
    const T scale = a.high == b.high ? (T)1 : exponential(fall);
    LogSum<T> out;
    out.high = up ? b.high : a.high;
    out.sum = up ? a.sum * scale + b.sum : b.sum * scale + a.sum;
    return out;
  }
};
",
    ),
    (
        "Add>",
        "struct Add {
  template <typename T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
",
    ),
    (
        "Multiply>",
        "struct Multiply {
  template <typename T> __device__ __forceinline__ T operator()(T a, T b) const { return a * b; }
};
",
    ),
    (
        "Largest>",
        "struct Largest {
  template <typename T> __device__ __forceinline__ T operator()(T a, T b) const {
    return nan_max(a, b);
  }
  template <typename T>
  __device__ __forceinline__ void operator()(T& a, int& i, T b, int k) const { arg_max(a, i, b, k); }
};
",
    ),
    (
        "Smallest>",
        "struct Smallest {
  template <typename T> __device__ __forceinline__ T operator()(T a, T b) const {
    return nan_min(a, b);
  }
  template <typename T>
  __device__ __forceinline__ void operator()(T& a, int& i, T b, int k) const { arg_min(a, i, b, k); }
};
",
    ),
    (
        "Or>",
        "struct Or {
  template <typename T> __device__ __forceinline__ T operator()(T a, T b) const { return a || b; }
};
",
    ),
    (
        "And>",
        "struct And {
  template <typename T> __device__ __forceinline__ T operator()(T a, T b) const { return a && b; }
};
",
    ),
    (
        "warp_reduce<",
        "// Every lane of the warp gets the combination of all lanes.
template <typename Op, typename T>
__device__ __forceinline__ T warp_reduce(T value) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) {
    const T other = __shfl_xor_sync(0xffffffffu, value, step);  // a bool travels as an int
    value = Op()(value, other);
  }
  return value;
}
",
    ),
    (
        "part_reduce<",
        "// Every one of kLanes neighbouring lanes gets the combination of them all.
template <int kLanes, typename Op, typename T>
__device__ __forceinline__ T part_reduce(T value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step >>= 1) {
    const T other = __shfl_xor_sync(0xffffffffu, value, step);
    value = Op()(value, other);
  }
  return value;
}
",
    ),
    (
        "part_arg<",
        "// The same for a value and its position.
template <int kLanes, typename Op, typename T>
__device__ __forceinline__ void part_arg(T& value, int& at) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step >>= 1) {
    const T other = __shfl_xor_sync(0xffffffffu, value, step);
    const int where = __shfl_xor_sync(0xffffffffu, at, step);
    Op()(value, at, other, where);
  }
}
",
    ),
    (
        "block_reduce<",
        "// Every thread of the block gets the combination of all threads.
template <int kThreads, typename Op, typename T>
__device__ __forceinline__ T block_reduce(T value) {
  __shared__ T partial[kThreads / 32];
  value = warp_reduce<Op>(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  T total = partial[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) total = Op()(total, partial[w]);
  __syncthreads();  // before the next reduction writes here
  return total;
}
",
    ),
    (
        "lane_below(value",
        "// The value that a lane further down has, and that of a given lane.
template <typename T>
__device__ __forceinline__ T lane_below(T value, int step) {
  return __shfl_up_sync(0xffffffffu, value, step);
}
template <typename T>
__device__ __forceinline__ T lane_value(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
",
    ),
    (
        "warp_before<",
        "// What the lanes before this one have together; the whole warp's goes to `total`.
template <typename Op, typename T>
__device__ __forceinline__ T warp_before(T value, T& total, T identity) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) {
    const T below = lane_below(value, step);
    const T both = Op()(below, value);
    if (lane >= step) value = both;
  }
  total = lane_value(value, 31);
  const T before = lane_below(value, 1);
  return lane == 0 ? identity : before;
}
",
    ),
    (
        "block_before<",
        "// The same for a block.
template <int kAlong, typename Op, typename T>
__device__ __forceinline__ T block_before(T value, T& total, T identity) {
  __shared__ T warps[kAlong / 32];
  const T lanes = warp_before<Op>(value, total, identity);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = total;
  __syncthreads();
  T sum = identity, before = identity;
#pragma unroll
  for (int w = 0; w < kAlong / 32; ++w) {
    if (w == threadIdx.x / 32) before = sum;
    sum = Op()(sum, warps[w]);
  }
  __syncthreads();  // before the next tile writes here
  total = sum;
  return Op()(before, lanes);
}
",
    ),
    (
        "column_before<",
        "// The same for threads with the same threadIdx.x.
template <int kAlong, int kRowsPerBlock, typename Op, typename T>
__device__ __forceinline__ T column_before(T value, T& total, T identity) {
  __shared__ T parts[kAlong][kRowsPerBlock];
  parts[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  T sum = identity, before = identity;
#pragma unroll
  for (int w = 0; w < kAlong; ++w) {
    if (w == threadIdx.y) before = sum;
    sum = Op()(sum, parts[w][threadIdx.x]);
  }
  __syncthreads();  // before the next tile writes here
  total = sum;
  return before;
}
",
    ),
    (
        "column_reduce<",
        "// Threads with the same threadIdx.x get the combination of them all.
template <int kThreads, int kAlong, typename Op, typename T>
__device__ __forceinline__ T column_reduce(T value) {
  __shared__ T partial[kAlong][kThreads];
  partial[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  T total = partial[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < kAlong; ++w) total = Op()(total, partial[w][threadIdx.x]);
  __syncthreads();  // before the next reduction writes here
  return total;
}
",
    ),
    (
        "column_arg<",
        "// The same for a value and its position.
template <int kThreads, int kAlong, typename Op, typename T>
__device__ __forceinline__ void column_arg(T& value, int& at) {
  __shared__ T values[kAlong][kThreads];
  __shared__ int places[kAlong][kThreads];
  values[threadIdx.y][threadIdx.x] = value;
  places[threadIdx.y][threadIdx.x] = at;
  __syncthreads();
  value = values[0][threadIdx.x];
  at = places[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < kAlong; ++w) Op()(value, at, values[w][threadIdx.x], places[w][threadIdx.x]);
  __syncthreads();  // before the next reduction writes here
}
",
    ),
    (
        "warp_arg<",
        "// The same for a value and its position.
template <typename Op, typename T>
__device__ __forceinline__ void warp_arg(T& value, int& at) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) {
    const T other = __shfl_xor_sync(0xffffffffu, value, step);
    const int where = __shfl_xor_sync(0xffffffffu, at, step);
    Op()(value, at, other, where);
  }
}
",
    ),
    (
        "block_arg<",
        "template <int kThreads, typename Op, typename T>
__device__ __forceinline__ void block_arg(T& value, int& at) {
  __shared__ T values[kThreads / 32];
  __shared__ int places[kThreads / 32];
  warp_arg<Op>(value, at);
  if (threadIdx.x % 32 == 0) {
    values[threadIdx.x / 32] = value;
    places[threadIdx.x / 32] = at;
  }
  __syncthreads();
  value = values[0];
  at = places[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) Op()(value, at, values[w], places[w]);
  __syncthreads();  // before the next reduction writes here
}
",
    ),
];

/// Includes and helpers that `body` needs, then `body`, indented.
pub(crate) fn complete(comment: &str, body: &[String]) -> String {
    let body = indent(body);
    let mut needed = vec![false; HELPERS.len()];
    // Helpers use helpers defined before them.
    let mut text = body.clone();
    for k in (0..HELPERS.len()).rev() {
        needed[k] = uses(&text, HELPERS[k].0);
        if needed[k] {
            text.push_str(HELPERS[k].1);
        }
    }
    let mut out = String::new();
    for l in comment.lines() {
        out.push_str(if l.is_empty() { "//" } else { "// " });
        out.push_str(l);
        out.push('\n');
    }
    out.push_str("#include <cuda_runtime.h>\n");
    if text.contains("__half") {
        out.push_str("#include <cuda_fp16.h>\n");
    }
    if text.contains("bfloat16") {
        out.push_str("#include <cuda_bf16.h>\n");
    }
    out.push_str("#include <cmath>\n#include <cstdint>\n\n");
    for (k, (_, definition)) in HELPERS.iter().enumerate() {
        if needed[k] {
            out.push_str(definition);
            out.push('\n');
        }
    }
    out.push_str(&body);
    out
}

/// Whether `name` occurs as a whole identifier.
fn uses(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Indents by braces, two spaces each; preprocessor lines stay at the margin.
fn indent(lines: &[String]) -> String {
    let mut depth = 0usize;
    let mut out = String::new();
    for line in lines.iter().flat_map(|l| l.split('\n')) {
        let line = line.trim();
        let opens = line.matches('{').count();
        let closes = line.matches('}').count();
        let leading = line.chars().take_while(|c| *c == '}').count();
        let here = if line.starts_with('#') { 0 } else { depth.saturating_sub(leading) };
        if !line.is_empty() {
            out.push_str(&"  ".repeat(here));
            out.push_str(line);
        }
        out.push('\n');
        depth = (depth + opens).saturating_sub(closes);
    }
    out
}
