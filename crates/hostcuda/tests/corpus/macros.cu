// What macros make: kernels, launchers, qualifiers, lists, names pasted together, launches.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include "macros.cuh"

#define DEVICE_INLINE __device__ __forceinline__
#define EXPORT extern "C"
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define BLOCK 128
#define CHECK_CUDA(call)                        \
    do {                                        \
        cudaError_t status_ = (call);           \
        if (status_ != cudaSuccess) return (int)status_; \
    } while (0)

// A kernel and its launcher for every operation of a list.
#define UNARY_OPS(X)          \
    X(twice, v + v)           \
    X(square, v * v)          \
    X(shifted, v + BLOCK)

#define MAKE_UNARY(name, expression)                                                    \
    DEVICE_INLINE float name##_op(float v) { return expression; }                       \
    __global__ void __launch_bounds__(BLOCK) name##_kernel(const float* x, float* y, int n) { \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                            \
        if (i < n) y[i] = name##_op(x[i]);                                              \
    }                                                                                   \
    EXPORT int unary_##name(const float* x, float* y, int n, cudaStream_t s) {          \
        name##_kernel<<<CEIL_DIV(n, BLOCK), BLOCK, 0, s>>>(x, y, n);                    \
        CHECK_CUDA(cudaGetLastError());                                                 \
        return 0;                                                                       \
    }

UNARY_OPS(MAKE_UNARY)

// The beginning and the end of a kernel.
#define KERNEL_BEGIN(name) namespace name { __global__ void kernel(const float* x, float* y, int n) { \
    extern __shared__ float tile[];
#define KERNEL_END } }

KERNEL_BEGIN(reversed)
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[n - 1 - threadIdx.x];
KERNEL_END

// Names made of names; the waiting is in none of them.
#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
#define SHUFFLE(kind, v, d) CONCAT(__shfl_, CONCAT(kind, _sync))(0xffffffffu, v, d)
#define FOR_EACH_TYPE(X) X(float) X(int)
#define MAKE_WARP_SUM(T)                                              \
    DEVICE_INLINE T warp_sum(T v) {                                   \
        for (int o = 1; o < 32; o <<= 1) v += SHUFFLE(xor, v, o);     \
        return v;                                                     \
    }
FOR_EACH_TYPE(MAKE_WARP_SUM)

#define LAUNCH(kernel, blocks, ...) kernel<<<blocks, 32, 0, s>>>(__VA_ARGS__)
#define LAUNCH_AND_CHECK(launch) launch; if (cudaGetLastError() != cudaSuccess) return 1

template <typename T>
__global__ void warp_sums_kernel(const T* x, T* y) {
    T v = warp_sum(x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) y[blockIdx.x] = v;
}

#undef MAKE
#define MAKE(T, suffix)                                                               \
    EXPORT int CONCAT(warp_sums_, suffix)(const T* x, T* y, int rows, cudaStream_t s) { \
        LAUNCH_AND_CHECK(LAUNCH(warp_sums_kernel<T>, rows, x, y));                    \
        return 0;                                                                     \
    }
MAKE(float, f32)
#undef MAKE
#define MAKE(T) EXPORT int CONCAT(warp_sums_, T)(const T* x, T* y, int rows, cudaStream_t s) { LAUNCH(warp_sums_kernel<T>, rows, x, y); return 0; }
MAKE(int)

// A list in a file of its own, read twice.
#define OP(name, symbol) \
    struct name { DEVICE_INLINE float operator()(float a, float b) const { return a symbol b; } };
#include "macros.def"
#undef OP

template <class Op>
__global__ void binary_kernel(const float* a, const float* b, float* y, int n, Op op) {
    LOOP_OVER(i, n) y[i] = op(a[i], b[i]);
}

EXPORT void binary(const float* a, const float* b, float* y, int n, int which, cudaStream_t s) {
    int count = 0;
#define OP(name, symbol) \
    if (which == count++) binary_kernel<<<3, 64, 0, s>>>(a, b, y, n, name{});
#include "macros.def"
#undef OP
}

EXPORT void reverse_128(const float* x, float* y, cudaStream_t s) { LAUNCH_WITH(reversed::kernel, 1, 128, 512)(x, y, 128); }

#ifdef WITH_EXTRAS
EXPORT void not_compiled(const float* x, cudaStream_t s) { missing<<<1, 1>>>(x); }
#endif
