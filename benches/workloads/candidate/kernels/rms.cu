#include <cuda_runtime.h>
__global__ void rms_kernel(const float* x, const float* w, float* y, int rows, int n, float eps) {
    int row = blockIdx.x;
    const float* p = x + (long long)row * n;
    float* q = y + (long long)row * n;
    __shared__ float part[256];
    float s = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += p[i] * p[i];
    part[threadIdx.x] = s;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) {
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
        __syncthreads();
    }
    float r = rsqrtf(part[0] / n + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x) q[i] = p[i] * r * w[i];
}
extern "C" int rms(const float* x, const float* w, float* y, int rows, int n, float eps, cudaStream_t stream) {
    rms_kernel<<<rows, 256, 0, stream>>>(x, w, y, rows, n, eps);
    return (int)cudaGetLastError();
}
