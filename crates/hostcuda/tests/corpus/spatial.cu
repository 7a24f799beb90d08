// Stencils, convolution, pooling: halo tiles, constant memory, three-dimensional grids.
#include <cuda_runtime.h>
#include <float.h>

#define KS 5
__constant__ float c_filter[KS];

__global__ void conv1d_constant_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float tile[128 + KS - 1];
    const int gid = blockIdx.x * blockDim.x + threadIdx.x;
    const int half = KS / 2;
    tile[threadIdx.x + half] = gid < n ? x[gid] : 0.f;
    if (threadIdx.x < half) {
        tile[threadIdx.x] = gid - half >= 0 ? x[gid - half] : 0.f;
        int right = gid + (int)blockDim.x;
        tile[threadIdx.x + blockDim.x + half] = right < n ? x[right] : 0.f;
    }
    __syncthreads();
    if (gid < n) {
        float acc = 0.f;
#pragma unroll
        for (int k = 0; k < KS; ++k) acc += tile[threadIdx.x + k] * c_filter[k];
        y[gid] = acc;
    }
}

template <int BX, int BY>
__global__ void stencil_kernel(const float* __restrict__ in, float* __restrict__ out, int H, int W) {
    __shared__ float tile[BY + 2][BX + 2];
    const int x = blockIdx.x * BX + threadIdx.x, y = blockIdx.y * BY + threadIdx.y;
    auto at = [&](int yy, int xx) -> float { return (yy >= 0 && yy < H && xx >= 0 && xx < W) ? __ldg(&in[yy * W + xx]) : 0.0f; };
    const int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    tile[ty][tx] = at(y, x);
    if (threadIdx.x == 0) tile[ty][0] = at(y, x - 1);
    if (threadIdx.x == BX - 1) tile[ty][BX + 1] = at(y, x + 1);
    if (threadIdx.y == 0) tile[0][tx] = at(y - 1, x);
    if (threadIdx.y == BY - 1) tile[BY + 1][tx] = at(y + 1, x);
    __syncthreads();
    if (x >= W || y >= H) return;
    out[y * W + x] = tile[ty][tx - 1] + tile[ty][tx + 1] + tile[ty - 1][tx] + tile[ty + 1][tx] - 4.f * tile[ty][tx];
}

__global__ void conv2d_direct_kernel(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
                                     float* __restrict__ y, int C, int H, int W, int K, int R, int OH, int OW) {
    int ow = blockIdx.x * blockDim.x + threadIdx.x;
    int oh = blockIdx.y * blockDim.y + threadIdx.y;
    int nk = blockIdx.z, n = nk / K, k = nk % K;
    if (ow < OW && oh < OH) {
        float acc = bias[k];
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < R; ++s)
                    acc += x[((n * C + c) * H + oh + r) * W + ow + s] * w[((k * C + c) * R + r) * R + s];
        y[((n * K + k) * OH + oh) * OW + ow] = acc;
    }
}

__global__ void maxpool2d_kernel(const float* __restrict__ x, float* __restrict__ y, int NC, int H, int W, int k, int stride, int pad, int OH, int OW) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx >= NC * OH * OW) return;
    int ow = idx % OW, oh = idx / OW % OH, nc = idx / (OW * OH);
    float best = -FLT_MAX;
    for (int r = 0; r < k; ++r)
        for (int s = 0; s < k; ++s) {
            int h = oh * stride - pad + r, w = ow * stride - pad + s;
            if (h >= 0 && h < H && w >= 0 && w < W) best = max(best, x[(nc * H + h) * W + w]);
        }
    y[idx] = best;
}

__global__ void global_avgpool_kernel(const float* x, float* y, int HW) {
    __shared__ float sdata[64];
    float s = 0.f;
    for (int i = threadIdx.x; i < HW; i += blockDim.x) s += x[(size_t)blockIdx.x * HW + i];
    sdata[threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = sdata[threadIdx.x] + sdata[threadIdx.x + 32];
        __syncwarp();
        s += __shfl_xor_sync(0xffffffff, s, 16); s += __shfl_xor_sync(0xffffffff, s, 8); s += __shfl_xor_sync(0xffffffff, s, 4);
        s += __shfl_xor_sync(0xffffffff, s, 2); s += __shfl_xor_sync(0xffffffff, s, 1);
        if (threadIdx.x == 0) y[blockIdx.x] = s / HW;
    }
}

extern "C" int conv1d_constant(const float* x, const float* w, float* y, int n, cudaStream_t s) {
    cudaError_t e = cudaMemcpyToSymbolAsync(c_filter, w, KS * sizeof(float), 0, cudaMemcpyDeviceToDevice, s);
    if (e != cudaSuccess) return e;
    conv1d_constant_kernel<<<(n + 127) / 128, 128, 0, s>>>(x, y, n);
    return cudaGetLastError();
}
extern "C" void stencil(const float* x, float* y, int H, int W, cudaStream_t s) {
    stencil_kernel<32, 4><<<dim3((W + 31) / 32, (H + 3) / 4), dim3(32, 4), 0, s>>>(x, y, H, W);
}
extern "C" void conv2d(const float* x, const float* w, const float* b, float* y, int N, int C, int H, int W, int K, int R, cudaStream_t s) {
    int OH = H - R + 1, OW = W - R + 1;
    dim3 block(16, 4, 1);
    dim3 grid((OW + 15) / 16, (OH + 3) / 4, N * K);
    conv2d_direct_kernel<<<grid, block, 0, s>>>(x, w, b, y, C, H, W, K, R, OH, OW);
}
extern "C" void maxpool2d(const float* x, float* y, int NC, int H, int W, int k, int stride, int pad, cudaStream_t s) {
    int OH = (H + 2 * pad - k) / stride + 1, OW = (W + 2 * pad - k) / stride + 1;
    maxpool2d_kernel<<<(NC * OH * OW + 255) / 256, 256, 0, s>>>(x, y, NC, H, W, k, stride, pad, OH, OW);
}
extern "C" void global_avgpool(const float* x, float* y, int NC, int HW, cudaStream_t s) { global_avgpool_kernel<<<NC, 64, 0, s>>>(x, y, HW); }
