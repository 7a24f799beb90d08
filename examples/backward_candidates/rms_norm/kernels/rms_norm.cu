#include <cuda_runtime.h>

namespace {

constexpr int WARP = 32, ROWS_PER_BLOCK = 8, COLUMNS = 128;

__device__ float summed(float value) {
    for (int lane = WARP / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffff, value, lane);
    return value;
}

// A warp per row.
__global__ void forward_kernel(const float* x, const float* weight, float* out, float* factors, int rows,
                               int features, float eps) {
    const int row = blockIdx.x * ROWS_PER_BLOCK + threadIdx.y;
    if (row >= rows) return;
    const long long at = (long long)row * features;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < features; i += WARP) squares += x[at + i] * x[at + i];
    const float factor = rsqrtf(summed(squares) / features + eps);
    for (int i = threadIdx.x; i < features; i += WARP) out[at + i] = x[at + i] * factor * weight[i];
    if (threadIdx.x == 0) factors[row] = factor;
}

// With n = x * factor: grad_x = factor * (grad * weight - n * mean(grad * weight * n)).
__global__ void backward_kernel(const float* x, const float* weight, const float* factors, const float* grad,
                                float* grad_x, int rows, int features) {
    const int row = blockIdx.x * ROWS_PER_BLOCK + threadIdx.y;
    if (row >= rows) return;
    const long long at = (long long)row * features;
    const float factor = factors[row];
    float along = 0.0f;
    for (int i = threadIdx.x; i < features; i += WARP) along += grad[at + i] * weight[i] * x[at + i] * factor;
    const float mean = summed(along) / features;
    for (int i = threadIdx.x; i < features; i += WARP) {
        grad_x[at + i] = factor * (grad[at + i] * weight[i] - x[at + i] * factor * mean);
    }
}

// A thread per column, and a block row per group of rows.
__global__ void parts_kernel(const float* x, const float* factors, const float* grad, float* parts, int rows,
                             int features) {
    const int column = blockIdx.x * COLUMNS + threadIdx.x;
    if (column >= features) return;
    float sum = 0.0f;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        const long long at = (long long)row * features + column;
        sum += grad[at] * x[at] * factors[row];
    }
    parts[(long long)blockIdx.y * features + column] = sum;
}

__global__ void sum_kernel(const float* parts, float* grad_weight, int features, int groups) {
    const int column = blockIdx.x * COLUMNS + threadIdx.x;
    if (column >= features) return;
    float sum = 0.0f;
    for (int group = 0; group < groups; ++group) sum += parts[(long long)group * features + column];
    grad_weight[column] = sum;
}

unsigned parts_of(int count, int size) { return (unsigned)((count + size - 1) / size); }

}  // namespace

extern "C" int rms_forward(const float* x, const float* weight, float* out, float* factors, int rows, int features,
                           float eps, cudaStream_t stream) {
    const dim3 threads(WARP, ROWS_PER_BLOCK);
    forward_kernel<<<parts_of(rows, ROWS_PER_BLOCK), threads, 0, stream>>>(x, weight, out, factors, rows, features,
                                                                            eps);
    return (int)cudaGetLastError();
}

extern "C" int rms_backward(const float* x, const float* weight, const float* factors, const float* grad,
                            float* grad_x, int rows, int features, cudaStream_t stream) {
    const dim3 threads(WARP, ROWS_PER_BLOCK);
    backward_kernel<<<parts_of(rows, ROWS_PER_BLOCK), threads, 0, stream>>>(x, weight, factors, grad, grad_x, rows,
                                                                             features);
    return (int)cudaGetLastError();
}

extern "C" int rms_backward_weight(const float* x, const float* factors, const float* grad, float* parts,
                                   float* grad_weight, int rows, int features, int groups, cudaStream_t stream) {
    const unsigned columns = parts_of(features, COLUMNS);
    parts_kernel<<<dim3(columns, groups), COLUMNS, 0, stream>>>(x, factors, grad, parts, rows, features);
    sum_kernel<<<columns, COLUMNS, 0, stream>>>(parts, grad_weight, features, groups);
    return (int)cudaGetLastError();
}
