// Reductions, scans, arg-reductions, histograms, top values.
#include <cuda_runtime.h>
#include <float.h>

__global__ void sum_atomic_kernel(const float* __restrict__ x, float* __restrict__ out, int n) {
    __shared__ float warp_sums[8];
    float v = 0.f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    for (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o);
    if (!(threadIdx.x & 31)) warp_sums[threadIdx.x >> 5] = v;
    __syncthreads();
    if (threadIdx.x < 8) {
        v = warp_sums[threadIdx.x];
        for (int o = 4; o; o /= 2) v += __shfl_down_sync(0xff, v, o, 8);
        if (threadIdx.x == 0) atomicAdd(out, v);
    }
}

__global__ void argmax_kernel(const float* __restrict__ x, int* __restrict__ out, int cols) {
    __shared__ float best_v[32];
    __shared__ int best_i[32];
    float v = -FLT_MAX;
    int at = 0;
    const float* row = x + (size_t)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        if (row[i] > v) { v = row[i]; at = i; }
    for (int o = 16; o > 0; o >>= 1) {
        float ov = __shfl_down_sync(0xffffffff, v, o);
        int oi = __shfl_down_sync(0xffffffff, at, o);
        if (ov > v || (ov == v && oi < at)) { v = ov; at = oi; }
    }
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) { best_v[warp] = v; best_i[warp] = at; }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w)
            if (best_v[w] > v || (best_v[w] == v && best_i[w] < at)) { v = best_v[w]; at = best_i[w]; }
        out[blockIdx.x] = at;
    }
}

// Inclusive scan of each row: shuffles within warps, shared memory between them.
__global__ void cumsum_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float warp_total[32];
    __shared__ float carry;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    if (threadIdx.x == 0) carry = 0.f;
    __syncthreads();
    for (int base = 0; base < cols; base += blockDim.x) {
        int i = base + threadIdx.x;
        float v = i < cols ? x[(size_t)blockIdx.x * cols + i] : 0.f;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            float u = __shfl_up_sync(0xffffffff, v, o);
            if (lane >= o) v += u;
        }
        if (lane == 31) warp_total[warp] = v;
        __syncthreads();
        if (warp == 0) {
            float t = lane < warps ? warp_total[lane] : 0.f;
            for (int o = 1; o < 32; o <<= 1) {
                float u = __shfl_up_sync(0xffffffff, t, o);
                if (lane >= o) t += u;
            }
            warp_total[lane] = t;
        }
        __syncthreads();
        float add = carry + (warp ? warp_total[warp - 1] : 0.f);
        if (i < cols) y[(size_t)blockIdx.x * cols + i] = v + add;
        __syncthreads();
        if (threadIdx.x == blockDim.x - 1) carry = v + add;
        __syncthreads();
    }
}

// Hillis-Steele scan with two buffers in dynamic shared memory.
__global__ void scan_exclusive_kernel(const int* in, int* out, int n) {
    extern __shared__ int temp[];
    int tid = threadIdx.x, pout = 0, pin = 1;
    temp[tid] = (tid > 0 && tid < n) ? in[tid - 1] : 0;
    __syncthreads();
    for (int offset = 1; offset < n; offset *= 2) {
        pout = 1 - pout;
        pin = 1 - pout;
        if (tid >= offset) temp[pout * n + tid] = temp[pin * n + tid] + temp[pin * n + tid - offset];
        else temp[pout * n + tid] = temp[pin * n + tid];
        __syncthreads();
    }
    out[tid] = temp[pout * n + tid];
}

__global__ void histogram_kernel(const unsigned char* data, unsigned int* hist, int n) {
    __shared__ unsigned int local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (local[i]) atomicAdd(&hist[i], local[i]);
}

// Float maximum through integer atomics, as one finds it on forums.
__device__ static float atomicMaxFloat(float* address, float val) {
    int* address_as_i = (int*)address;
    int old = *address_as_i, assumed;
    do {
        assumed = old;
        old = ::atomicCAS(address_as_i, assumed, __float_as_int(fmaxf(val, __int_as_float(assumed))));
    } while (assumed != old);
    return __int_as_float(old);
}

__global__ void absmax_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? fabsf(x[i]) : 0.f;
    v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, 16));
    v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, 8));
    v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, 4));
    v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, 2));
    v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, 1));
    if (threadIdx.x % 32 == 0) atomicMaxFloat(out, v);
}

// Stream compaction of positive values with ballots; order does not matter.
__global__ void count_positive_kernel(const float* x, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned active = __activemask();
    unsigned votes = __ballot_sync(active, x[i] > 0.f);
    if ((threadIdx.x & 31) == __ffs(active) - 1) atomicAdd(count, __popc(votes));
}

// Column sums of a matrix, 2-D block, partial sums in shared memory.
__global__ void column_mean_kernel(const float* x, float* out, int rows, int cols) {
    __shared__ float part[8][33];
    int col = blockIdx.x * 32 + threadIdx.x;
    float s = 0.f;
    if (col < cols)
        for (int r = threadIdx.y; r < rows; r += 8) s += x[(size_t)r * cols + col];
    part[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        for (int k = 1; k < 8; ++k) s += part[k][threadIdx.x];
        out[col] = s / rows;
    }
}

extern "C" void sum_all(const float* x, float* out, int n, cudaStream_t s) {
    cudaMemsetAsync(out, 0, sizeof(float), s);
    sum_atomic_kernel<<<20, 256, 0, s>>>(x, out, n);
}
extern "C" void argmax(const float* x, int* out, int rows, int cols, cudaStream_t s) { argmax_kernel<<<rows, 128, 0, s>>>(x, out, cols); }
extern "C" void cumsum(const float* x, float* y, int rows, int cols, cudaStream_t s) { cumsum_kernel<<<rows, 256, 0, s>>>(x, y, cols); }
extern "C" void scan_exclusive(const int* x, int* y, int n, cudaStream_t s) {
    scan_exclusive_kernel<<<1, n, 2 * n * sizeof(int), s>>>(x, y, n);
}
extern "C" void histogram(const unsigned char* data, unsigned int* hist, int n, cudaStream_t s) {
    cudaMemsetAsync(hist, 0, 256 * sizeof(unsigned int), s);
    histogram_kernel<<<9, 192, 0, s>>>(data, hist, n);
}
extern "C" void absmax(const float* x, float* out, int n, cudaStream_t s) {
    cudaMemsetAsync(out, 0, 4, s);
    absmax_kernel<<<(n + 255) / 256, 256, 0, s>>>(x, out, n);
}
extern "C" void count_positive(const float* x, int* count, int n, cudaStream_t s) {
    cudaMemsetAsync(count, 0, 4, s);
    count_positive_kernel<<<(n + 255) / 256, 256, 0, s>>>(x, count, n);
}
extern "C" void column_mean(const float* x, float* out, int rows, int cols, cudaStream_t s) {
    column_mean_kernel<<<(cols + 31) / 32, dim3(32, 8), 0, s>>>(x, out, rows, cols);
}
