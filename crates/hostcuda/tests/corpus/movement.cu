// Transpose, permute, gather, concatenation, padding.
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int TILE_DIM = 32;
constexpr int BLOCK_ROWS = 8;

template <typename T>
__global__ void transpose_kernel(const T* __restrict__ in, T* __restrict__ out, int rows, int cols) {
    __shared__ T tile[TILE_DIM][TILE_DIM + 1];
    int x = blockIdx.x * TILE_DIM + threadIdx.x;
    int y = blockIdx.y * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < cols && (y + j) < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * cols + x];
    __syncthreads();
    x = blockIdx.y * TILE_DIM + threadIdx.x;
    y = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < rows && (y + j) < cols) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

// [A, B, C] -> [C, A, B]
__global__ void permute_kernel(const float* in, float* out, int A, int B, int C) {
    int64_t total = (int64_t)A * B * C;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)blockDim.x * gridDim.x) {
        int b = i % B;
        int a = (i / B) % A;
        int c = i / ((int64_t)A * B);
        out[i] = in[((int64_t)a * B + b) * C + c];
    }
}

__global__ void embedding_kernel(const int64_t* __restrict__ ids, const float* __restrict__ table, float* __restrict__ out, int dim) {
    const int64_t id = ids[blockIdx.x];
    for (int i = threadIdx.x; i < dim; i += blockDim.x)
        out[(int64_t)blockIdx.x * dim + i] = table[id * dim + i];
}

__global__ void concat_kernel(const float* a, const float* b, float* out, int rows, int ca, int cb) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    int cols = ca + cb;
    if (c >= cols) return;
    out[r * cols + c] = c < ca ? a[r * ca + c] : b[r * cb + (c - ca)];
}

extern "C" void transpose_f32(const float* in, float* out, int rows, int cols, cudaStream_t s) {
    dim3 grid((cols + TILE_DIM - 1) / TILE_DIM, (rows + TILE_DIM - 1) / TILE_DIM), block(TILE_DIM, BLOCK_ROWS);
    transpose_kernel<float><<<grid, block, 0, s>>>(in, out, rows, cols);
}
extern "C" void transpose_u8(const uint8_t* in, uint8_t* out, int rows, int cols, cudaStream_t s) {
    dim3 grid((cols + TILE_DIM - 1) / TILE_DIM, (rows + TILE_DIM - 1) / TILE_DIM), block(TILE_DIM, BLOCK_ROWS);
    transpose_kernel<<<grid, block, 0, s>>>(in, out, rows, cols);
}
extern "C" void permute(const float* in, float* out, int A, int B, int C, cudaStream_t s) {
    permute_kernel<<<7, 160, 0, s>>>(in, out, A, B, C);
}
extern "C" void embedding(const int64_t* ids, const float* table, float* out, int n, int dim, cudaStream_t s) {
    embedding_kernel<<<n, 64, 0, s>>>(ids, table, out, dim);
}
extern "C" void concat(const float* a, const float* b, float* out, int rows, int ca, int cb, cudaStream_t s) {
    concat_kernel<<<dim3((ca + cb + 127) / 128, rows), 128, 0, s>>>(a, b, out, rows, ca, cb);
}
