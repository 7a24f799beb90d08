#include <cuda_runtime.h>

__global__ void rms_norm_kernel(const float* x, const float* weight, float* y, int columns, float eps) {
  const float* row = x + (size_t)blockIdx.x * columns;
  __shared__ float partial[128];
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c] * row[c];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  float factor = 1.0f / sqrtf(partial[0] / columns + eps);
  for (int c = threadIdx.x; c < columns; c += blockDim.x)
    y[(size_t)blockIdx.x * columns + c] = row[c] * factor * weight[c];
}
extern "C" int rms_norm(const float* x, const float* weight, float* y, int rows, int columns, float eps,
                        cudaStream_t stream) {
  rms_norm_kernel<<<rows, 128, 0, stream>>>(x, weight, y, columns, eps);
  return (int)cudaGetLastError();
}
