// Attention in the manner of flash attention: one block a query tile, online softmax in shared memory.
#include <cuda_runtime.h>
#include "common.cuh"

template <int D, int BR, int BC>
__global__ void flash_kernel(const float* __restrict__ Q, const float* __restrict__ K, const float* __restrict__ V,
                             float* __restrict__ O, int S, float scale, bool causal) {
    __shared__ float Ks[BC][D + 1];
    __shared__ float Vs[BC][D + 1];
    const int head = blockIdx.y;
    const int row = blockIdx.x * BR + threadIdx.x;
    const float* q = Q + (size_t)head * S * D;
    const float* k = K + (size_t)head * S * D;
    const float* v = V + (size_t)head * S * D;
    float qr[D], acc[D];
#pragma unroll
    for (int d = 0; d < D; ++d) {
        qr[d] = row < S ? q[(size_t)row * D + d] * scale : 0.f;
        acc[d] = 0.f;
    }
    float m = -INFINITY, l = 0.f;
    for (int j0 = 0; j0 < S; j0 += BC) {
        for (int i = threadIdx.x; i < BC * D; i += BR) {
            int r = i / D, c = i % D;
            Ks[r][c] = j0 + r < S ? k[(size_t)(j0 + r) * D + c] : 0.f;
            Vs[r][c] = j0 + r < S ? v[(size_t)(j0 + r) * D + c] : 0.f;
        }
        __syncthreads();
        if (row < S) {
            for (int j = 0; j < BC && j0 + j < S; ++j) {
                if (causal && j0 + j > row) break;
                float s = 0.f;
#pragma unroll
                for (int d = 0; d < D; ++d) s += qr[d] * Ks[j][d];
                float mn = fmaxf(m, s), a = __expf(m - mn), p = __expf(s - mn);
                l = l * a + p;
#pragma unroll
                for (int d = 0; d < D; ++d) acc[d] = acc[d] * a + p * Vs[j][d];
                m = mn;
            }
        }
        __syncthreads();
    }
    if (row < S)
        for (int d = 0; d < D; ++d) O[((size_t)head * S + row) * D + d] = acc[d] / l;
}

// Rotary embedding, interleaved halves.
__global__ void rope_kernel(const float* __restrict__ x, const float* __restrict__ cos_t, const float* __restrict__ sin_t,
                            float* __restrict__ y, int S, int H, int D) {
    const int half = D / 2;
    const int idx = GLOBAL_THREAD_ID;
    if (idx >= S * H * half) return;
    const int i = idx % half, h = (idx / half) % H, s = idx / (half * H);
    const size_t base = ((size_t)s * H + h) * D;
    rotate_pair(x[base + i], x[base + i + half], cos_t[s * half + i], sin_t[s * half + i], y[base + i], y[base + i + half]);
}

extern "C" void attention(const float* Q, const float* K, const float* V, float* O, int heads, int S, bool causal, cudaStream_t stream) {
    constexpr int D = 32;
    LAUNCH_2D((flash_kernel<D, 64, 16>), cdiv(S, 64), heads, 64, stream, Q, K, V, O, S, 1.0f / sqrtf((float)D), causal);
}
extern "C" void rope(const float* x, const float* c, const float* s, float* y, int S, int H, int D, cudaStream_t stream) {
    const int n = S * H * (D / 2);
    rope_kernel<<<cdiv(n, 128), 128, 0, stream>>>(x, c, s, y, S, H, D);
}
