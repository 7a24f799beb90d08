//! Accesses to global memory.

use super::Helper;

pub(super) const HELPERS: &[Helper] = &[
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
];
