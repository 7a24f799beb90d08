// A blocked matrix product: packed panels, a register tile of 32 x 6, blocks over OpenMP threads.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <cstring>

// Whether matrix products compute anything, as `hostcuda_launches` says it of kernels.
extern "C" __attribute__((weak, visibility("hidden"), noinline)) int hostcuda_libraries() { return 1; }

namespace hostcuda {
constexpr int kGemmRows = 32, kGemmColumns = 6, kGemmDepth = 256, kGemmBlockRows = 96, kGemmBlockColumns = 384;
typedef float GemmVector __attribute__((vector_size(64)));

// acc[32 x 6] += a[depth][32] * b[depth][6]
inline void gemm_tile(int depth, const float* a, const float* b, float* acc) {
  GemmVector c[kGemmColumns][2];
  for (int j = 0; j < kGemmColumns; ++j) memcpy(c[j], acc + j * kGemmRows, sizeof(c[j]));
  for (int p = 0; p < depth; ++p) {
    GemmVector a0, a1;
    memcpy(&a0, a + p * kGemmRows, 64);
    memcpy(&a1, a + p * kGemmRows + 16, 64);
#pragma GCC unroll 6
    for (int j = 0; j < kGemmColumns; ++j) {
      c[j][0] += a0 * b[p * kGemmColumns + j];
      c[j][1] += a1 * b[p * kGemmColumns + j];
    }
  }
  for (int j = 0; j < kGemmColumns; ++j) memcpy(acc + j * kGemmRows, c[j], sizeof(c[j]));
}

// C(m x n, column major) = alpha op(A) op(B) + beta C. Sums are kept in float.
template <class TA, class TB, class TC>
__attribute__((noinline)) void gemm(bool ta, bool tb, int m, int n, int k, float alpha, const TA* A, int lda,
                                    const TB* B, int ldb, float beta, TC* C, int ldc) {
  if (!hostcuda_libraries()) return;
  const int row_blocks = (m + kGemmBlockRows - 1) / kGemmBlockRows;
  const int column_blocks = (n + kGemmBlockColumns - 1) / kGemmBlockColumns;
  const bool team = (double)m * n * k > 1e5;
#pragma omp parallel for collapse(2) schedule(dynamic, 1) if (team)
  for (int cb = 0; cb < column_blocks; ++cb)
    for (int rb = 0; rb < row_blocks; ++rb) {
      const int r0 = rb * kGemmBlockRows, c0 = cb * kGemmBlockColumns;
      const int rows = m - r0 < kGemmBlockRows ? m - r0 : kGemmBlockRows;
      const int columns = n - c0 < kGemmBlockColumns ? n - c0 : kGemmBlockColumns;
      const int row_tiles = (rows + kGemmRows - 1) / kGemmRows, column_tiles = (columns + kGemmColumns - 1) / kGemmColumns;
      const size_t sum_size = (size_t)row_tiles * column_tiles * kGemmRows * kGemmColumns;
      const size_t a_size = (size_t)row_tiles * kGemmRows * kGemmDepth, b_size = (size_t)column_tiles * kGemmColumns * kGemmDepth;
      float* memory = (float*)aligned_alloc(64, ((sum_size + a_size + b_size) * sizeof(float) + 63) / 64 * 64);
      if (!memory) abort();
      float *sum = memory, *pa = sum + sum_size, *pb = pa + a_size;
      memset(sum, 0, sum_size * sizeof(float));
      for (int p0 = 0; p0 < k; p0 += kGemmDepth) {
        const int depth = k - p0 < kGemmDepth ? k - p0 : kGemmDepth;
        for (int t = 0; t < row_tiles; ++t)
          for (int p = 0; p < depth; ++p)
            for (int i = 0; i < kGemmRows; ++i) {
              const int r = r0 + t * kGemmRows + i;
              const size_t at = ta ? (size_t)r * lda + (p0 + p) : (size_t)(p0 + p) * lda + r;
              pa[((size_t)t * depth + p) * kGemmRows + i] = r < m ? (float)A[at] : 0.f;
            }
        for (int t = 0; t < column_tiles; ++t)
          for (int p = 0; p < depth; ++p)
            for (int j = 0; j < kGemmColumns; ++j) {
              const int c = c0 + t * kGemmColumns + j;
              const size_t at = tb ? (size_t)(p0 + p) * ldb + c : (size_t)c * ldb + (p0 + p);
              pb[((size_t)t * depth + p) * kGemmColumns + j] = c < n ? (float)B[at] : 0.f;
            }
        for (int u = 0; u < column_tiles; ++u)
          for (int t = 0; t < row_tiles; ++t)
            gemm_tile(depth, pa + (size_t)t * depth * kGemmRows, pb + (size_t)u * depth * kGemmColumns,
                      sum + ((size_t)u * row_tiles + t) * kGemmRows * kGemmColumns);
      }
      for (int j = 0; j < columns; ++j)
        for (int i = 0; i < rows; ++i) {
          const size_t tile = (size_t)(j / kGemmColumns) * row_tiles + i / kGemmRows;
          const float s = sum[tile * kGemmRows * kGemmColumns + (size_t)(j % kGemmColumns) * kGemmRows + i % kGemmRows];
          TC& out = C[(size_t)(c0 + j) * ldc + r0 + i];
          // beta = 0 must not read C, which may hold anything.
          out = TC(beta == 0.f ? alpha * s : alpha * s + beta * (float)out);
        }
      free(memory);
    }
}
}  // namespace hostcuda
