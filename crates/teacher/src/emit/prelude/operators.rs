//! Types of the operators that combine values in reductions and scans.

use super::Helper;

pub(super) const HELPERS: &[Helper] = &[
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
];
