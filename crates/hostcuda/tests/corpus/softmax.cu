// Row softmax: block reduction through shared memory and shuffles, online, one warp a row.
#include <cuda_runtime.h>
#include <float.h>
#include <math_constants.h>

#define FULL_MASK 0xffffffff
constexpr int WARP_SIZE = 32;

template <typename T>
__device__ __forceinline__ T warp_reduce_max(T val) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset >>= 1)
        val = max(val, __shfl_xor_sync(FULL_MASK, val, offset));
    return val;
}

__inline__ __device__ float warp_reduce_sum(float val) {
    for (int offset = 16; offset > 0; offset /= 2) {
        val += __shfl_down_sync(FULL_MASK, val, offset);
    }
    return val;
}

__device__ float block_reduce_sum(float val) {
    static __shared__ float shared[32];
    int lane = threadIdx.x % 32;
    int wid = threadIdx.x / 32;
    val = warp_reduce_sum(val);
    if (lane == 0) shared[wid] = val;
    __syncthreads();
    val = (threadIdx.x < blockDim.x / 32) ? shared[lane] : 0.0f;
    if (wid == 0) val = warp_reduce_sum(val);
    if (threadIdx.x == 0) shared[0] = val;
    __syncthreads();
    val = shared[0];
    __syncthreads();
    return val;
}

template <int BLOCK>
__global__ void __launch_bounds__(BLOCK)
row_softmax_kernel(const float* __restrict__ x, const float* __restrict__ mask, float* __restrict__ y, int cols, float scale) {
    extern __shared__ __align__(16) float row[];
    __shared__ float s_max;
    __shared__ float red[BLOCK / 32];
    const float* in = x + (size_t)blockIdx.x * cols;
    float* out = y + (size_t)blockIdx.x * cols;
    const int tid = threadIdx.x;

    float m = -FLT_MAX;
    for (int i = tid; i < cols; i += BLOCK) {
        float v = in[i] * scale + mask[i];
        row[i] = v;
        m = fmaxf(m, v);
    }
    m = warp_reduce_max(m);
    if ((tid & 31) == 0) red[tid >> 5] = m;
    __syncthreads();
    if (tid == 0) {
        float best = red[0];
        for (int w = 1; w < BLOCK / 32; ++w) best = fmaxf(best, red[w]);
        s_max = best;
    }
    __syncthreads();
    m = s_max;

    float sum = 0.f;
    for (int i = tid; i < cols; i += BLOCK) {
        float e = __expf(row[i] - m);
        row[i] = e;
        sum += e;
    }
    sum = block_reduce_sum(sum);
    const float inv = 1.0f / sum;
    for (int i = tid; i < cols; i += BLOCK) out[i] = row[i] * inv;
}

// One warp per row, online softmax, several rows a block, early exit of whole warps.
__global__ void warp_softmax_kernel(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    int lane = threadIdx.x;
    if (row >= rows) return;
    const float* in = x + row * cols;
    float m = -INFINITY, d = 0.f;
    for (int i = lane; i < cols; i += 32) {
        float v = in[i];
        float mn = fmaxf(m, v);
        d = d * expf(m - mn) + expf(v - mn);
        m = mn;
    }
    for (int o = 16; o > 0; o >>= 1) {
        float om = __shfl_xor_sync(0xffffffff, m, o);
        float od = __shfl_xor_sync(0xffffffff, d, o);
        float mn = fmaxf(m, om);
        d = (mn == -INFINITY) ? 0.f : d * expf(m - mn) + od * expf(om - mn);
        m = mn;
    }
    for (int i = lane; i < cols; i += 32) y[row * cols + i] = expf(in[i] - m) / d;
}

// The textbook reduction in shared memory.
__global__ void logsumexp_kernel(const float* __restrict__ x, float* __restrict__ out, int cols) {
    __shared__ float buf[256];
    int tid = threadIdx.x;
    const float* in = x + (long long)blockIdx.x * cols;
    float m = -CUDART_INF_F;
    for (int i = tid; i < cols; i += blockDim.x) m = fmaxf(m, in[i]);
    buf[tid] = m;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) buf[tid] = fmaxf(buf[tid], buf[tid + s]);
        __syncthreads();
    }
    m = buf[0];
    __syncthreads();
    float sum = 0.f;
    for (int i = tid; i < cols; i += blockDim.x) sum += expf(in[i] - m);
    buf[tid] = sum;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) buf[tid] += buf[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = m + logf(buf[0]);
}

extern "C" void row_softmax(const float* x, const float* mask, float* y, int rows, int cols, float scale, cudaStream_t stream) {
    size_t smem = cols * sizeof(float);
    if (smem > 48 * 1024)
        cudaFuncSetAttribute(row_softmax_kernel<256>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    row_softmax_kernel<256><<<rows, 256, smem, stream>>>(x, mask, y, cols, scale);
}
extern "C" void warp_softmax(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    warp_softmax_kernel<<<(rows + 3) / 4, dim3(32, 4), 0, stream>>>(x, y, rows, cols);
}
extern "C" void logsumexp(const float* x, float* out, int rows, int cols, cudaStream_t stream) {
    logsumexp_kernel<<<rows, 256, 0, stream>>>(x, out, cols);
}
