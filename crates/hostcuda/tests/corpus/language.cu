// Ways to write it: function pointers, cudaLaunchKernel, lambdas, structs by value, file-scope shared
// memory, preprocessor branches, comments that look like code, strings that look like launches.
#include <cuda_runtime.h>
#include <cassert>
#include <cstdio>
#include "common.cuh"

extern __shared__ float file_scope_shared[];

struct Params {
    int n;
    float scale;
    const float* x;
    float* y;
};

/* __global__ void commented_out<<<1, 2>>>(__shared__ int x); */
static const char* kText = "k<<<1, 2>>>(\"__shared__ float s[3];\") // asm";

__global__ void params_kernel(Params p) {
    const int i = global_thread();
    if (i < p.n) p.y[i] = p.x[i] * p.scale;
}

__global__ void add_scalar(const float* x, float* y, int n, float v) {
    int i = GLOBAL_THREAD_ID;
    if (i < n) y[i] = x[i] + v;
}
__global__ void mul_scalar(const float* x, float* y, int n, float v) {
    int i = GLOBAL_THREAD_ID;
    if (i < n) y[i] = x[i] * v;
}
using ScalarKernel = void (*)(const float*, float*, int, float);

__global__ void reverse_kernel(const float* x, float* y, int n) {
    int t = threadIdx.x;
    if (t < n) file_scope_shared[t] = x[blockIdx.x * n + t];
    __syncthreads();
    if (t < n) y[blockIdx.x * n + t] = file_scope_shared[n - t - 1];
}

template <typename F>
__global__ void apply_kernel(const float* x, float* y, int n, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = f(x[i]);
}
struct AffineClip {
    float a, b;
    __device__ float operator()(float v) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
        asm volatile("" ::: "memory");
#endif
        return __saturatef(fmaf(a, v, b));
    }
};

// Threads leave before the barrier, whole warps and parts of warps; several arrays in one declaration.
__global__ void early_exit_kernel(const int* x, int* y, int n) {
    __shared__ int a[96], b[96];
    const int t = threadIdx.x;
    if (t >= n) return;
    a[t] = x[t];
    __syncthreads();
    b[t] = a[(t + 1) % n] - a[t];
    __syncthreads();
    int any = __syncthreads_or(b[t] > 40), all = __syncthreads_and(b[t] > -1000), count = __syncthreads_count(b[t] > 0);
    y[t] = b[(t + n - 1) % n] + 1000 * any + 10000 * all + 100000 * count;
}

// Warp intrinsics with integer answers.
__global__ void warp_words_kernel(const int* x, int* y) {
    const unsigned lane = threadIdx.x & 31u, all = 0xffffffffu;
    int v = x[threadIdx.x];
    int out = __popc(__ballot_sync(all, v & 1));
    out += 100 * __any_sync(all, v == 7) + 200 * __all_sync(all, v >= 0);
    out += 1000 * __reduce_max_sync(all, (unsigned)(v & 15));
    out += 100000 * __popc(__match_any_sync(all, v % 4));
    out += 10000000 * (__shfl_sync(all, v, 3, 8) & 15);
    if (lane < 16) out += __shfl_sync(0xffffu, v, 15) & 7;
    y[threadIdx.x] = out;
}

// Recursion of templates in place of unrolling by hand, dispatch by block size.
template <unsigned int blockSize>
__global__ void unrolled_sum_kernel(const int* x, int* out, unsigned int n) {
    __shared__ int sdata[blockSize];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * (blockSize * 2) + tid;
    int sum = 0;
    while (i < n) {
        sum += x[i];
        if (i + blockSize < n) sum += x[i + blockSize];
        i += blockSize * 2 * gridDim.x;
    }
    sdata[tid] = sum;
    __syncthreads();
    if constexpr (blockSize >= 256) { if (tid < 128) sdata[tid] += sdata[tid + 128]; __syncthreads(); }
    if constexpr (blockSize >= 128) { if (tid < 64) sdata[tid] += sdata[tid + 64]; __syncthreads(); }
    if (tid < 32) {
        int v = sdata[tid] + sdata[tid + 32];
        for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
        if (tid == 0) atomicAdd(out, v);
    }
}

extern "C" {
void with_params(const float* x, float* y, int n, float scale, cudaStream_t s) {
    Params p;
    p.n = n; p.scale = scale; p.x = x; p.y = y;
    params_kernel<<<cdiv(n, 64), 64, 0, s>>>(p);
}
void through_pointer(const float* x, float* y, int n, float v, bool multiply, cudaStream_t s) {
    ScalarKernel k = multiply ? mul_scalar : add_scalar;
    k<<<cdiv(n, 96), 96, 0, s>>>(x, y, n, v);
    assert(kText != nullptr);
}
int through_launch_kernel(const float* x, float* y, int n, float v, cudaStream_t s) {
    void* args[] = {(void*)&x, (void*)&y, (void*)&n, (void*)&v};
    return (int)cudaLaunchKernel((const void*)add_scalar, dim3(cdiv(n, 128)), dim3(128), args, 0, s);
}
void reverse_rows(const float* x, float* y, int rows, int n, cudaStream_t s) { reverse_kernel<<<rows, n, n * sizeof(float), s>>>(x, y, n); }
void affine_clip(const float* x, float* y, int n, float a, float b, cudaStream_t s) {
    apply_kernel<<<cdiv(n, 256), 256, 0, s>>>(x, y, n, AffineClip{a, b});
}
void early_exit(const int* x, int* y, int n, cudaStream_t s) { early_exit_kernel<<<1, 96, 0, s>>>(x, y, n); }
void warp_words(const int* x, int* y, cudaStream_t s) { warp_words_kernel<<<1, 64, 0, s>>>(x, y); }
void unrolled_sum(const int* x, int* out, unsigned n, cudaStream_t s) {
    cudaMemsetAsync(out, 0, sizeof(int), s);
    unrolled_sum_kernel<256><<<3, 256, 0, s>>>(x, out, n);
}
int bad_launch(float* x, cudaStream_t s) {
    mul_scalar<<<1, 2048, 0, s>>>(x, x, 1, 2.f);
    return cudaGetLastError();
}
}

// Names that others of the same declaration mention, of kinds that have shadows and kinds that have none.
__global__ void one_declaration_kernel(const float* x, float* y, int n) {
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    const unsigned u = threadIdx.x, j = blockIdx.x * blockDim.x + u, twice = 2 * j;
    long long a = t, b = a + a, c = b + b, d = c + c, e = d + d;
    if (i < n) y[i] = x[j] + (twice == 2 * i ? 1.f : 0.f) + (float)(e - 16 * t);
}
extern "C" void one_declaration(const float* x, float* y, int n, cudaStream_t stream) {
    one_declaration_kernel<<<(n + 63) / 64, 64, 0, stream>>>(x, y, n);
}
