// Matrix products: naive, tiled, register-tiled with double buffering, transposed, matrix-vector.
#include <cuda_runtime.h>

#define TILE 16

__global__ void matmul_naive_kernel(const float* A, const float* B, float* C, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
}

__global__ void matmul_tiled_kernel(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE + 1];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float acc = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        As[ty][tx] = (row < M && t * TILE + tx < K) ? A[row * K + t * TILE + tx] : 0.0f;
        Bs[ty][tx] = (col < N && t * TILE + ty < K) ? B[(t * TILE + ty) * N + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
matmul_register_kernel(const float* __restrict__ A, const float* __restrict__ B, const float* __restrict__ bias,
                       float* __restrict__ C, int M, int N, int K) {
    constexpr int THREADS = (BM / TM) * (BN / TN);
    __shared__ __align__(16) float As[2][BK][BM + 4];
    __shared__ __align__(16) float Bs[2][BK][BN];
    const int tid = threadIdx.x;
    const int tm = (tid / (BN / TN)) * TM, tn = (tid % (BN / TN)) * TN;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    float acc[TM][TN] = {};
    auto load = [&](int buffer, int k0) {
        for (int i = tid; i < BM * BK; i += THREADS) {
            int m = i / BK, k = i % BK;
            As[buffer][k][m] = (m0 + m < M && k0 + k < K) ? A[(size_t)(m0 + m) * K + k0 + k] : 0.f;
        }
        for (int i = tid; i < BK * BN; i += THREADS) {
            int k = i / BN, n = i % BN;
            Bs[buffer][k][n] = (k0 + k < K && n0 + n < N) ? B[(size_t)(k0 + k) * N + n0 + n] : 0.f;
        }
    };
    load(0, 0);
    __syncthreads();
    int buffer = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        if (k0 + BK < K) load(buffer ^ 1, k0 + BK);
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[buffer][k][tm + i];
#pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = Bs[buffer][k][tn + j];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
        }
        __syncthreads();
        buffer ^= 1;
    }
#pragma unroll
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) {
            int m = m0 + tm + i, n = n0 + tn + j;
            if (m < M && n < N) C[(size_t)m * N + n] = fmaxf(acc[i][j] + bias[n], 0.f);
        }
}

// One warp per output of y = W x.
__global__ void gemv_kernel(const float* __restrict__ W, const float* __restrict__ x, float* __restrict__ y, int M, int K) {
    int warp_id = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x & 0x1f;
    if (warp_id >= M) return;
    float sum = 0.f;
    for (int k = lane; k < K; k += 32) sum += W[warp_id * K + k] * x[k];
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffff, sum, offset, 32);
    if (lane == 0) y[warp_id] = sum;
}

extern "C" void matmul_naive(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t s) {
    dim3 b(16, 16), g((N + 15) / 16, (M + 15) / 16);
    matmul_naive_kernel<<<g, b, 0, s>>>(A, B, C, M, N, K);
}
extern "C" void matmul_tiled(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t s) {
    matmul_tiled_kernel<<<dim3((N + TILE - 1) / TILE, (M + TILE - 1) / TILE), dim3(TILE, TILE), 0, s>>>(A, B, C, M, N, K);
}
extern "C" void linear_relu(const float* A, const float* B, const float* bias, float* C, int M, int N, int K, cudaStream_t s) {
    matmul_register_kernel<64, 64, 16, 4, 4><<<dim3((N + 63) / 64, (M + 63) / 64), 256, 0, s>>>(A, B, bias, C, M, N, K);
}
extern "C" void gemv(const float* W, const float* x, float* y, int M, int K, cudaStream_t s) {
    gemv_kernel<<<(M * 32 + 255) / 256, 256, 0, s>>>(W, x, y, M, K);
}
