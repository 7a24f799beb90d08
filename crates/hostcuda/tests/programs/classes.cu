// Indices in a constructor's initialisers, and a warp's reduction in a macro of several lines.
#include "check.cuh"

#define WARP_SUM(v)                                        \
    do {                                                   \
        for (int o = 16; o > 0; o >>= 1)                   \
            v += __shfl_xor_sync(0xffffffffu, v, o);       \
        for (int o = 16; o > 0; o >>= 1) {                 \
            v = max(v, __shfl_down_sync(0xffffffffu, v, o)); \
        }                                                  \
    } while (0)

class Reducer {
public:
    __device__ explicit Reducer(int* scratch)
        : scratch_(scratch), thread_(threadIdx.x), block_{blockIdx.x * blockDim.x + gridDim.x} {}
    __device__ int sum(int v) {
        WARP_SUM(v);
        if (thread_ % 32 == 0) scratch_[thread_ / 32] = v;
        __syncthreads();
        return scratch_[0] + scratch_[1] + (int)block_;
    }

private:
    int* scratch_;
    unsigned thread_, block_;
};

__global__ void sums(const int* x, int* y) {
    __shared__ int scratch[2];
    Reducer reducer(scratch);
    const int total = reducer.sum(x[blockIdx.x * blockDim.x + threadIdx.x]);
    if (threadIdx.x == 0) y[blockIdx.x] = total;
}

int main() {
    static int x[192], y[3];
    for (int i = 0; i < 192; ++i) x[i] = i * 37 % 101;
    sums<<<3, 64>>>(x, y);
    for (int b = 0; b < 3; ++b) {
        int want = 64 * b + 3;
        for (int i = 0; i < 64; ++i) want += x[64 * b + i];
        CHECK(b, y[b], want);
    }
    return failures != 0;
}
