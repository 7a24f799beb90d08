// Elementwise kernels: one element a thread, four a thread, grid stride, broadcasting by index.
#include <cuda_runtime.h>
#include <math_constants.h>

#define BLOCK_SIZE 256
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define CUDA_KERNEL_LOOP(i, n) \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)

__device__ __forceinline__ float gelu_tanh(float x) {
    const float kAlpha = 0.7978845608f;
    return 0.5f * x * (1.0f + tanhf(kAlpha * (x + 0.044715f * x * x * x)));
}

__device__ __forceinline__ float gelu_erf(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118f)); }

// out = gelu(x + bias) + residual
__global__ void bias_gelu_residual_kernel(const float* __restrict__ x, const float* __restrict__ bias,
                                          const float* __restrict__ residual, float* __restrict__ out,
                                          int n, int d) {
    const int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < n) {
        out[idx] = gelu_erf(x[idx] + bias[idx % d]) + residual[idx];
    }
}

__global__ void bias_gelu_residual_vec4_kernel(const float* __restrict__ x, const float* __restrict__ bias,
                                               const float* __restrict__ residual, float* __restrict__ out,
                                               int n, int d) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 3 < n) {
        float4 v = *reinterpret_cast<const float4*>(x + i);
        float4 b = __ldg(reinterpret_cast<const float4*>(bias + (i % d)));
        float4 r = reinterpret_cast<const float4*>(residual)[i / 4];
        float4 o;
        o.x = gelu_erf(v.x + b.x) + r.x;
        o.y = gelu_erf(v.y + b.y) + r.y;
        o.z = gelu_erf(v.z + b.z) + r.z;
        o.w = gelu_erf(v.w + b.w) + r.w;
        *reinterpret_cast<float4*>(out + i) = o;
    } else {
        for (int k = i; k < n; ++k) out[k] = gelu_erf(x[k] + bias[k % d]) + residual[k];
    }
}

// Grid-stride, a macro loop as in Caffe.
__global__ void gelu_stride_kernel(const float* x, float* y, int n) {
    CUDA_KERNEL_LOOP(i, n) { y[i] = gelu_tanh(x[i]); }
}

__global__ void silu_mul_kernel(const float* __restrict__ gate, const float* __restrict__ up,
                                float* __restrict__ out, size_t n) {
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        float g = gate[i];
        if (g != g) continue;
        out[i] = g / (1.0f + __expf(-g)) * up[i];
    }
}

template <typename T>
struct Mish {
    __device__ T operator()(T x) const { return x * tanhf(log1pf(expf(x))); }
};
template <typename T>
struct HardSwish {
    T scale;
    __device__ __forceinline__ T operator()(T x) const { return x * fminf(fmaxf(x + T(3), T(0)), T(6)) * scale; }
};
struct LeakyRelu {
    float slope;
    __host__ __device__ float operator()(float x) const { return x >= 0.f ? x : x * slope; }
};

template <typename T, typename Op, int kItems = 4>
__global__ void __launch_bounds__(BLOCK_SIZE) unary_kernel(const T* __restrict__ in, T* __restrict__ out, int n, Op op) {
    int base = blockIdx.x * (BLOCK_SIZE * kItems) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        int i = base + k * BLOCK_SIZE;
        if (i < n) out[i] = op(in[i]);
    }
}

// unsigned indices, strides, NaN-aware clamp
__global__ void clamp_nan_kernel(const float* __restrict__ x, float* __restrict__ y, unsigned int n, float lo, float hi) {
    unsigned int tid = blockDim.x * blockIdx.x + threadIdx.x;
    if (tid >= n) return;
    float v = x[tid];
    y[tid] = isnan(v) ? CUDART_NAN_F : fminf(hi, fmaxf(lo, v));
}

// NCHW broadcast of a per-channel scale and shift, index arithmetic
__global__ void channel_affine_kernel(const float* __restrict__ x, const float* __restrict__ w,
                                      const float* __restrict__ b, float* __restrict__ y,
                                      int N, int C, int HW) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    int total = N * C * HW;
    if (idx >= total) { return; }
    int c = (idx / HW) % C;
    y[idx] = fmaf(x[idx], w[c], b[c]);
}

// two-dimensional grid
__global__ void outer_add_kernel(const float* a, const float* b, float* c, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && col < cols) c[row * cols + col] = a[row] + b[col];
}

extern "C" {

void bias_gelu_residual(const float* x, const float* bias, const float* residual, float* out, int n, int d, cudaStream_t stream) {
    bias_gelu_residual_kernel<<<CEIL_DIV(n, BLOCK_SIZE), BLOCK_SIZE, 0, stream>>>(x, bias, residual, out, n, d);
}

int bias_gelu_residual_vec4(const float* x, const float* bias, const float* residual, float* out, int n, int d, cudaStream_t stream) {
    int threads = 256;
    int blocks = (CEIL_DIV(n, 4) + threads - 1) / threads;
    bias_gelu_residual_vec4_kernel<<<blocks, threads, 0, stream>>>(x, bias, residual, out, n, d);
    return static_cast<int>(cudaGetLastError());
}

void gelu_stride(const float* x, float* y, int n, cudaStream_t stream) {
    gelu_stride_kernel<<<dim3(13), dim3(128), 0, stream>>>(x, y, n);
}

cudaError_t silu_mul(const float* gate, const float* up, float* out, size_t n, cudaStream_t stream) {
    int device = 0, sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    silu_mul_kernel<<<sms * 4, 256, 0, stream>>>(gate, up, out, n);
    return cudaPeekAtLastError();
}

void unary(const float* x, float* y, int n, int which, cudaStream_t stream) {
    const int blocks = CEIL_DIV(n, BLOCK_SIZE * 4);
    switch (which) {
        case 0: unary_kernel<float, Mish<float>><<<blocks, BLOCK_SIZE, 0, stream>>>(x, y, n, Mish<float>()); break;
        case 1: unary_kernel<<<blocks, BLOCK_SIZE, 0, stream>>>(x, y, n, HardSwish<float>{1.0f / 6.0f}); break;
        default: unary_kernel<float, LeakyRelu, 4><<<blocks, BLOCK_SIZE, 0, stream>>>(x, y, n, LeakyRelu{0.1f});
    }
}

void clamp_nan(const float* x, float* y, unsigned int n, float lo, float hi, cudaStream_t stream) {
    clamp_nan_kernel<<<(n + 127u) / 128u, 128u, 0u, stream>>>(x, y, n, lo, hi);
}

void channel_affine(const float* x, const float* w, const float* b, float* y, int N, int C, int HW, cudaStream_t stream) {
    channel_affine_kernel<<<(N * C * HW + 255) / 256, 256, 0, stream>>>(x, w, b, y, N, C, HW);
}

void outer_add(const float* a, const float* b, float* c, int rows, int cols, cudaStream_t stream) {
    dim3 block(32, 8);
    dim3 grid((cols + block.x - 1) / block.x, (rows + block.y - 1) / block.y);
    outer_add_kernel<<<grid, block, 0, stream>>>(a, b, c, rows, cols);
}
}
