#include <cuda_runtime.h>

__global__ void forward_kernel(const float* x, const float* weight, float* y, int n, int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i] * weight[i % columns];
}
__global__ void of_x_kernel(const float* x, const float* weight, const float* grad, float* of_x, int n, int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) of_x[i] = 2.0f * x[i] * weight[i % columns] * grad[i];
}
__global__ void of_weight_kernel(const float* x, const float* grad, float* of_weight, int rows, int columns) {
  int c = threadIdx.x;
  float sum = 0.0f;
  for (int row = 0; row < rows; ++row) sum += x[row * columns + c] * x[row * columns + c] * grad[row * columns + c];
  of_weight[c] = sum;
}
extern "C" int forward(const float* x, const float* weight, float* y, int n, int columns, cudaStream_t stream) {
  forward_kernel<<<(n + 127) / 128, 128, 0, stream>>>(x, weight, y, n, columns);
  return (int)cudaGetLastError();
}
extern "C" int backward(const float* x, const float* weight, const float* grad, float* of_x, float* of_weight, int rows,
                        int columns, cudaStream_t stream) {
  int n = rows * columns;
  of_x_kernel<<<(n + 127) / 128, 128, 0, stream>>>(x, weight, grad, of_x, n, columns);
  of_weight_kernel<<<1, columns, 0, stream>>>(x, grad, of_weight, rows, columns);
  return (int)cudaGetLastError();
}
