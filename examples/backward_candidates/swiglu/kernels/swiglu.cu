#include <cuda_runtime.h>

namespace {

constexpr int THREADS = 256;

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__global__ void forward_kernel(const float* gate, const float* up, float* out, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

__global__ void backward_kernel(const float* gate, const float* up, const float* grad, float* grad_gate,
                                float* grad_up, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = gate[i], s = sigmoid(x);
    grad_gate[i] = grad[i] * up[i] * s * (1.0f + x * (1.0f - s));
    grad_up[i] = grad[i] * x * s;
}

unsigned blocks(long long n) { return (unsigned)((n + THREADS - 1) / THREADS); }

}  // namespace

extern "C" int swiglu_forward(const float* gate, const float* up, float* out, long long n, cudaStream_t stream) {
    forward_kernel<<<blocks(n), THREADS, 0, stream>>>(gate, up, out, n);
    return (int)cudaGetLastError();
}

extern "C" int swiglu_backward(const float* gate, const float* up, const float* grad, float* grad_gate,
                               float* grad_up, long long n, cudaStream_t stream) {
    backward_kernel<<<blocks(n), THREADS, 0, stream>>>(gate, up, grad, grad_gate, grad_up, n);
    return (int)cudaGetLastError();
}
