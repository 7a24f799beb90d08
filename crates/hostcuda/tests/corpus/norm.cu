// Normalisations: layer norm with Welford and with two sums, RMS norm, group norm, batch norm inference.
#include <cuda_runtime.h>
#include <cuda_fp16.h>

struct WelfordData {
    float mean, m2, count;
};

__device__ __forceinline__ WelfordData welford_combine(WelfordData a, WelfordData b) {
    float count = a.count + b.count;
    if (count == 0.f) return a;
    float delta = b.mean - a.mean;
    WelfordData r;
    r.mean = a.mean + delta * (b.count / count);
    r.m2 = a.m2 + b.m2 + delta * delta * (a.count * b.count / count);
    r.count = count;
    return r;
}

__device__ __forceinline__ WelfordData welford_warp_reduce(WelfordData v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) {
        WelfordData o;
        o.mean = __shfl_xor_sync(0xffffffffu, v.mean, mask);
        o.m2 = __shfl_xor_sync(0xffffffffu, v.m2, mask);
        o.count = __shfl_xor_sync(0xffffffffu, v.count, mask);
        v = welford_combine(v, o);
    }
    return v;
}

__global__ void layernorm_welford_kernel(const float* __restrict__ x, const float* __restrict__ gamma,
                                         const float* __restrict__ beta, float* __restrict__ y, int d, float eps) {
    __shared__ WelfordData warps[32];
    const float* row = x + blockIdx.x * (size_t)d;
    WelfordData w{0.f, 0.f, 0.f};
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        float v = row[i];
        w.count += 1.f;
        float delta = v - w.mean;
        w.mean += delta / w.count;
        w.m2 += delta * (v - w.mean);
    }
    w = welford_warp_reduce(w);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) warps[warp] = w;
    __syncthreads();
    if (warp == 0) {
        w = lane < (int)(blockDim.x >> 5) ? warps[lane] : WelfordData{0.f, 0.f, 0.f};
        w = welford_warp_reduce(w);
        if (lane == 0) warps[0] = w;
    }
    __syncthreads();
    float mean = warps[0].mean, rstd = rsqrtf(warps[0].m2 / d + eps);
    for (int i = threadIdx.x; i < d; i += blockDim.x)
        y[blockIdx.x * (size_t)d + i] = (row[i] - mean) * rstd * gamma[i] + beta[i];
}

template <int THREADS>
__global__ void rmsnorm_vec4_kernel(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int d, float eps) {
    __shared__ float partial[THREADS / 32];
    __shared__ float inv_rms;
    const float4* row = reinterpret_cast<const float4*>(x + (size_t)blockIdx.x * d);
    const float4* weight = reinterpret_cast<const float4*>(w);
    float4* out = reinterpret_cast<float4*>(y + (size_t)blockIdx.x * d);
    const int d4 = d / 4;
    float ss = 0.f;
    for (int i = threadIdx.x; i < d4; i += THREADS) {
        float4 v = row[i];
        ss += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int o = 16; o; o >>= 1) ss += __shfl_xor_sync(~0u, ss, o);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = ss;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.f;
#pragma unroll
        for (int i = 0; i < THREADS / 32; ++i) total += partial[i];
        inv_rms = rsqrtf(total / (float)d + eps);
    }
    __syncthreads();
    const float r = inv_rms;
    for (int i = threadIdx.x; i < d4; i += THREADS) {
        float4 v = row[i], g = weight[i];
        v.x *= r * g.x; v.y *= r * g.y; v.z *= r * g.z; v.w *= r * g.w;
        out[i] = v;
    }
}

// Half in and out, float inside, half2 loads.
__global__ void rmsnorm_half_kernel(const __half* __restrict__ x, const __half* __restrict__ w, __half* __restrict__ y, int d, float eps) {
    extern __shared__ float sdata[];
    const __half2* row = (const __half2*)(x + (size_t)blockIdx.x * d);
    float acc = 0.0f;
    for (int i = threadIdx.x; i < d / 2; i += blockDim.x) {
        float2 f = __half22float2(row[i]);
        acc += f.x * f.x + f.y * f.y;
    }
    sdata[threadIdx.x] = acc;
    __syncthreads();
    for (int s = blockDim.x >> 1; s > 0; s >>= 1) {
        if (threadIdx.x < s) sdata[threadIdx.x] += sdata[threadIdx.x + s];
        __syncthreads();
    }
    float scale = rsqrtf(sdata[0] / d + eps);
    for (int i = threadIdx.x; i < d; i += blockDim.x)
        y[(size_t)blockIdx.x * d + i] = __float2half(__half2float(x[(size_t)blockIdx.x * d + i]) * scale * __half2float(w[i]));
}

// sum and sum of squares reduced together
__device__ inline void block_sum2(float& a, float& b, float* smem) {
    for (int o = warpSize / 2; o > 0; o /= 2) {
        a += __shfl_down_sync(0xffffffff, a, o);
        b += __shfl_down_sync(0xffffffff, b, o);
    }
    int warp = threadIdx.x / warpSize, lane = threadIdx.x % warpSize, n = (blockDim.x + warpSize - 1) / warpSize;
    if (lane == 0) { smem[warp] = a; smem[warp + 32] = b; }
    __syncthreads();
    a = 0.f; b = 0.f;
    for (int i = 0; i < n; ++i) { a += smem[i]; b += smem[i + 32]; }
}

__global__ void groupnorm_kernel(const float* x, const float* gamma, const float* beta, float* y, int C, int HW, int G, float eps) {
    __shared__ float smem[64];
    int n = blockIdx.x / G, g = blockIdx.x % G, cpg = C / G;
    const size_t base = ((size_t)n * C + (size_t)g * cpg) * HW;
    const int count = cpg * HW;
    float s = 0.f, q = 0.f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) { float v = x[base + i]; s += v; q += v * v; }
    block_sum2(s, q, smem);
    float mean = s / count, inv = rsqrtf(q / count - mean * mean + eps);
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        int c = g * cpg + i / HW;
        y[base + i] = (x[base + i] - mean) * inv * gamma[c] + beta[c];
    }
}

extern "C" void layernorm(const float* x, const float* g, const float* b, float* y, int rows, int d, float eps, cudaStream_t s) {
    layernorm_welford_kernel<<<rows, 128, 0, s>>>(x, g, b, y, d, eps);
}
extern "C" void rmsnorm(const float* x, const float* w, float* y, int rows, int d, float eps, cudaStream_t s) {
    rmsnorm_vec4_kernel<256><<<rows, 256, 0, s>>>(x, w, y, d, eps);
}
extern "C" void rmsnorm_half(const __half* x, const __half* w, __half* y, int rows, int d, float eps, cudaStream_t s) {
    const int threads = 128;
    rmsnorm_half_kernel<<<rows, threads, threads * sizeof(float), s>>>(x, w, y, d, eps);
}
extern "C" void groupnorm(const float* x, const float* g, const float* b, float* y, int N, int C, int HW, int G, float eps, cudaStream_t s) {
    groupnorm_kernel<<<N * G, 96, 0, s>>>(x, g, b, y, C, HW, G, eps);
}
