// Cooperative groups: block, tiles of 32 and of 8, reductions over a tile.
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

template <int TileSize>
__device__ float reduce_tile(cg::thread_block_tile<TileSize> tile, float v) {
    for (int i = tile.size() / 2; i > 0; i /= 2) v += tile.shfl_down(v, i);
    return v;
}

__global__ void row_sum_kernel(const float* x, float* out, int cols) {
    __shared__ float partial[32];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    float v = 0.f;
    for (int i = block.thread_rank(); i < cols; i += block.size()) v += x[(size_t)blockIdx.x * cols + i];
    v = reduce_tile<32>(warp, v);
    if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = v;
    block.sync();
    if (block.thread_rank() == 0) {
        for (unsigned w = 1; w < warp.meta_group_size(); ++w) v += partial[w];
        out[blockIdx.x] = v;
    }
}

// Eight threads a row, tiles of different warps and tiles advance at their own pace.
__global__ void ragged_max_kernel(const float* x, const int* lengths, float* out, int rows, int cols) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
    if (row >= rows) return;
    float best = -INFINITY;
    for (int start = 0; start < lengths[row]; start += tile.size()) {
        int i = start + tile.thread_rank();
        float v = i < lengths[row] ? x[row * cols + i] : -INFINITY;
        best = fmaxf(best, cg::reduce(tile, v, cg::greater<float>()));
    }
    if (tile.thread_rank() == 0) out[row] = best;
}

extern "C" void group_row_sum(const float* x, float* out, int rows, int cols, cudaStream_t s) { row_sum_kernel<<<rows, 128, 0, s>>>(x, out, cols); }
extern "C" void ragged_max(const float* x, const int* lengths, float* out, int rows, int cols, cudaStream_t s) {
    ragged_max_kernel<<<(rows * 8 + 127) / 128, 128, 0, s>>>(x, lengths, out, rows, cols);
}
