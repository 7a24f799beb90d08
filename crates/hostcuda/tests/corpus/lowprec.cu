// Half and bfloat16: packed arithmetic, conversions, mixed accumulation, operators.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>

__global__ void half2_axpby_kernel(const __half2* __restrict__ x, const __half2* __restrict__ y, __half2* __restrict__ o, int n2, float a, float b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n2) {
        const __half2 ha = __float2half2_rn(a);
        const __half2 hb = __float2half2_rn(b);
        o[i] = __hfma2(ha, x[i], __hmul2(hb, y[i]));
    }
}

template <typename scalar_t>
__global__ void relu_scale_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int n, float s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = static_cast<float>(x[i]);
    y[i] = static_cast<scalar_t>(v > 0.f ? v * s : 0.f);
}

// 128-bit loads of eight halves through a union of types.
__global__ void silu_half8_kernel(const __half* __restrict__ x, __half* __restrict__ y, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i + 7 < n) {
        uint4 raw = *reinterpret_cast<const uint4*>(x + i);
        __half2* h = reinterpret_cast<__half2*>(&raw);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float2 f = __half22float2(h[k]);
            f.x = f.x / (1.f + __expf(-f.x));
            f.y = f.y / (1.f + __expf(-f.y));
            h[k] = __floats2half2_rn(f.x, f.y);
        }
        *reinterpret_cast<uint4*>(y + i) = raw;
    }
}

__global__ void bf16_add_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) c[i] = __hadd(a[i], b[i]);
}

__global__ void bf16_dot_kernel(const __nv_bfloat162* a, const __nv_bfloat162* b, float* out, int n2) {
    float acc = 0.f;
    const __nv_bfloat162* ra = a + (size_t)blockIdx.x * n2;
    const __nv_bfloat162* rb = b + (size_t)blockIdx.x * n2;
    for (int i = threadIdx.x; i < n2; i += 32) {
        float2 u = __bfloat1622float2(ra[i]), v = __bfloat1622float2(rb[i]);
        acc += u.x * v.x + u.y * v.y;
    }
    for (int o = 16; o > 0; o >>= 1) acc += __shfl_xor_sync(0xffffffff, acc, o);
    if (threadIdx.x == 0) out[blockIdx.x] = acc;
}

__global__ void half_max_kernel(const half* x, half* out, int n) {
    half m = __float2half(-65504.f);
    for (int i = threadIdx.x; i < n; i += blockDim.x) m = __hmax(m, x[i]);
    for (int o = 16; o > 0; o >>= 1) m = __hmax(m, __shfl_down_sync(0xffffffff, m, o));
    if (threadIdx.x == 0) *out = m;
}

// Every float16 pattern to float and back.
__global__ void half_roundtrip_kernel(const unsigned short* bits, float* wide, unsigned short* back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float f = __half2float(__ushort_as_half(bits[i]));
        wide[i] = f;
        back[i] = __half_as_ushort(__float2half_rn(f));
    }
}

extern "C" {
void half2_axpby(const __half2* x, const __half2* y, __half2* o, int n2, float a, float b, cudaStream_t s) {
    half2_axpby_kernel<<<(n2 + 127) / 128, 128, 0, s>>>(x, y, o, n2, a, b);
}
void relu_scale_half(const half* x, half* y, int n, float k, cudaStream_t s) { relu_scale_kernel<half><<<(n + 255) / 256, 256, 0, s>>>(x, y, n, k); }
void relu_scale_bf16(const __nv_bfloat16* x, __nv_bfloat16* y, int n, float k, cudaStream_t s) { relu_scale_kernel<<<(n + 255) / 256, 256, 0, s>>>(x, y, n, k); }
void silu_half8(const __half* x, __half* y, int n, cudaStream_t s) { silu_half8_kernel<<<(n / 8 + 63) / 64, 64, 0, s>>>(x, y, n); }
void bf16_add(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int n, cudaStream_t s) { bf16_add_kernel<<<5, 64, 0, s>>>(a, b, c, n); }
void bf16_dot(const __nv_bfloat162* a, const __nv_bfloat162* b, float* out, int rows, int n2, cudaStream_t s) { bf16_dot_kernel<<<rows, 32, 0, s>>>(a, b, out, n2); }
void half_max(const half* x, half* out, int n, cudaStream_t s) { half_max_kernel<<<1, 32, 0, s>>>(x, out, n); }
void half_roundtrip(const unsigned short* bits, float* wide, unsigned short* back, int n, cudaStream_t s) {
    half_roundtrip_kernel<<<(n + 255) / 256, 256, 0, s>>>(bits, wide, back, n);
}
}
