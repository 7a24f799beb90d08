#include <cuda_runtime.h>

__global__ void add_relu_kernel(const float* x, const float* y, float* out, int n, float scale) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = fmaxf(x[i] + scale * y[i], 0.0f);
}
extern "C" int add_relu(const float* x, const float* y, float* out, int n, float scale, cudaStream_t stream) {
  add_relu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, out, n, scale);
  return (int)cudaGetLastError();
}
