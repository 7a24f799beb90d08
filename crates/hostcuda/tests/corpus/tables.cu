// Tables of kernels and types that lists of macros make; conditions on a compiler and on nobody's macro.
#include <cuda_runtime.h>
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif
#if defined(USE_DOUBLE) || defined(USE_DOUBLE_PRECISION)
typedef double real;
#define REAL_SUFFIX f64
#else
typedef float real;
#define REAL_SUFFIX f32
#endif
#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define API extern "C" __attribute__((visibility("default")))
template <typename T> HOST_DEVICE inline T sq(T v) { return v * v; }
#define INSTANTIATE_FOR(T, name, expr)                                              \
  template <> struct Functor_##name<T> {                                             \
    HOST_DEVICE T operator()(T v) const { return expr; }                             \
  };
template <typename T> struct Functor_cube;
INSTANTIATE_FOR(float, cube, v * sq(v))
INSTANTIATE_FOR(double, cube, v * sq(v))
template <class T, template <class> class F>
__global__ void map(const T* __restrict__ in, T* __restrict__ out, size_t n, F<T> f = F<T>()) {
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) out[i] = f(in[i]);
}
#define KERNEL_TABLE(X) X(8) X(16) X(32)
#define DEFINE_TILE(N) \
  template <> struct Tile<N> { static constexpr int kSize = N; static __device__ int lane() { return threadIdx.x % N; } };
template <int N> struct Tile;
KERNEL_TABLE(DEFINE_TILE)
template <int N>
static __global__ void tile_kernel(int* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = Tile<N>::lane() + Tile<N>::kSize; }
API void PASTE(cube, REAL_SUFFIX)(const real* x, real* y, size_t n, cudaStream_t s) {
  map<real, Functor_cube><<<8, 64, 0, s>>>(x, y, n, Functor_cube<real>());
}
API int tiles(int* y, unsigned char size, cudaStream_t s) {
#define CASE(N) case N: tile_kernel<N><<<2, 32, 0, s>>>(y); break;
  switch (size) { KERNEL_TABLE(CASE) default: return 1; }
#undef CASE
  return 0;
}
#define ENTRY(N) {N, tile_kernel<N>},
static const struct { int n; void (*k)(int*); } kTable[] = { KERNEL_TABLE(ENTRY) };
API int tiles_table(int* y, int n, cudaStream_t s) {
  for (const auto& e : kTable) if (e.n == n) { e.k<<<2, 32, 0, s>>>(y); return 0; }
  return 1;
}
#define DEVICE_VAR(T, name, ...) __device__ T name = __VA_ARGS__
DEVICE_VAR(int, counter, 0);
__constant__ float coeffs[] = {1.f, 2.f, 3.f};
__global__ void uses(float* y) { atomicAdd(&counter, 1); y[threadIdx.x] = coeffs[threadIdx.x % 3]; }
API void use_globals(float* y, cudaStream_t s) { uses<<<1, 32, 0, s>>>(y); }
#define SYNC_AND(x) __syncthreads(); x
#define WARP_REDUCE(v) do { _Pragma("unroll") for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o); } while (0)
__global__ void wr(const float* x, float* y) { float v = x[threadIdx.x]; WARP_REDUCE(v); SYNC_AND(y[threadIdx.x] = v); }
API void warp_reduce(const float* x, float* y, cudaStream_t s) { wr<<<1, 32, 0, s>>>(x, y); }
