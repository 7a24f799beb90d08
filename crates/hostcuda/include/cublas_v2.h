// The GEMMs of cuBLAS on the host: float, and half or bfloat16 through the Ex forms, summed in float.
// Everything else of cuBLAS is missing here, and the compiler says so by name.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "hostcuda/gemm.h"

typedef struct cublasContext* cublasHandle_t;
enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
typedef cudaDataType_t cudaDataType;

static inline cublasStatus_t cublasCreate(cublasHandle_t* h) { return *h = (cublasHandle_t)(uintptr_t)1, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasGetStream(cublasHandle_t, cudaStream_t* s) { return *s = nullptr, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t) { return CUBLAS_STATUS_SUCCESS; }
static inline const char* cublasGetStatusString(cublasStatus_t s) { return s ? "cublas call not supported here" : "success"; }

namespace hostcuda {
inline cublasStatus_t write_down(const GemmCall& call) {
  return recorder->gemm(recorder->context, &call) ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
// Everything that can be computed here.
inline bool supported(cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cublasComputeType_t compute) {
  auto known = [](cudaDataType_t t) { return t == CUDA_R_32F || t == CUDA_R_16F || t == CUDA_R_16BF; };
  return a == b && known(a) && known(c) && compute != CUBLAS_COMPUTE_16F;
}
}  // namespace hostcuda

static inline cublasStatus_t cublasSgemm(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                         const float* alpha, const float* A, int lda, const float* B, int ldb,
                                         const float* beta, float* C, int ldc) {
  if (m < 0 || n < 0 || k < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (hostcuda::recording())
    return hostcuda::write_down({{ta, tb}, {m, n, k}, A, B, C, {}, CUDA_R_32F, {lda, ldb, ldc}, {}, alpha, beta, 1,
                                 CUBLAS_COMPUTE_32F, CUBLAS_DEFAULT_MATH, CUBLAS_GEMM_DEFAULT, nullptr});
  hostcuda::gemm(ta != CUBLAS_OP_N, tb != CUBLAS_OP_N, m, n, k, *alpha, A, lda, B, ldb, *beta, C, ldc);
  return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                                                       int n, int k, const float* alpha, const float* A, int lda,
                                                       long long sa, const float* B, int ldb, long long sb,
                                                       const float* beta, float* C, int ldc, long long sc, int count) {
  if (hostcuda::recording() && m >= 0 && n >= 0 && k >= 0 && count > 0)
    return hostcuda::write_down({{ta, tb}, {m, n, k}, A, B, C, {}, CUDA_R_32F, {lda, ldb, ldc}, {sa, sb, sc}, alpha, beta,
                                 (uint32_t)count, CUBLAS_COMPUTE_32F, CUBLAS_DEFAULT_MATH, CUBLAS_GEMM_DEFAULT, nullptr});
  cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
  for (int i = 0; i < count && !s; ++i)
    s = cublasSgemm(h, ta, tb, m, n, k, alpha, A + i * sa, lda, B + i * sb, ldb, beta, C + i * sc, ldc);
  return s;
}
namespace hostcuda {
template <class TA, class TB>
inline cublasStatus_t gemm_out(bool ta, bool tb, int m, int n, int k, float alpha, const void* A, int lda, const void* B,
                               int ldb, float beta, void* C, cudaDataType_t type, int ldc) {
  switch (type) {
    case CUDA_R_32F: gemm(ta, tb, m, n, k, alpha, (const TA*)A, lda, (const TB*)B, ldb, beta, (float*)C, ldc); break;
    case CUDA_R_16F: gemm(ta, tb, m, n, k, alpha, (const TA*)A, lda, (const TB*)B, ldb, beta, (__half*)C, ldc); break;
    case CUDA_R_16BF: gemm(ta, tb, m, n, k, alpha, (const TA*)A, lda, (const TB*)B, ldb, beta, (__nv_bfloat16*)C, ldc); break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}
}  // namespace hostcuda
// alpha and beta are float: CUBLAS_COMPUTE_16F, where they are half, is not supported.
static inline cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                          const void* alpha, const void* A, cudaDataType_t at, int lda, const void* B,
                                          cudaDataType_t bt, int ldb, const void* beta, void* C, cudaDataType_t ct, int ldc,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  if (!hostcuda::supported(at, bt, ct, compute)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (hostcuda::recording())
    return hostcuda::write_down({{ta, tb}, {m, n, k}, A, B, C, {(uint32_t)at, (uint32_t)bt, (uint32_t)ct}, CUDA_R_32F,
                                 {lda, ldb, ldc}, {}, alpha, beta, 1, (uint32_t)compute, CUBLAS_DEFAULT_MATH, algorithm, nullptr});
  const bool a = ta != CUBLAS_OP_N, b = tb != CUBLAS_OP_N;
  const float x = *(const float*)alpha, y = *(const float*)beta;
  switch (at) {
    case CUDA_R_32F: return hostcuda::gemm_out<float, float>(a, b, m, n, k, x, A, lda, B, ldb, y, C, ct, ldc);
    case CUDA_R_16F: return hostcuda::gemm_out<__half, __half>(a, b, m, n, k, x, A, lda, B, ldb, y, C, ct, ldc);
    case CUDA_R_16BF: return hostcuda::gemm_out<__nv_bfloat16, __nv_bfloat16>(a, b, m, n, k, x, A, lda, B, ldb, y, C, ct, ldc);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
static inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                                                        int n, int k, const void* alpha, const void* A, cudaDataType_t at,
                                                        int lda, long long sa, const void* B, cudaDataType_t bt, int ldb,
                                                        long long sb, const void* beta, void* C, cudaDataType_t ct, int ldc,
                                                        long long sc, int count, cublasComputeType_t compute,
                                                        cublasGemmAlgo_t algorithm) {
  if (hostcuda::recording() && hostcuda::supported(at, bt, ct, compute) && count > 0)
    return hostcuda::write_down({{ta, tb}, {m, n, k}, A, B, C, {(uint32_t)at, (uint32_t)bt, (uint32_t)ct}, CUDA_R_32F,
                                 {lda, ldb, ldc}, {sa, sb, sc}, alpha, beta, (uint32_t)count, (uint32_t)compute,
                                 CUBLAS_DEFAULT_MATH, algorithm, nullptr});
  auto bytes = [](cudaDataType_t t) { return (long long)(t == CUDA_R_32F ? 4 : t == CUDA_R_64F ? 8 : 2); };
  cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
  for (int i = 0; i < count && !s; ++i)
    s = cublasGemmEx(h, ta, tb, m, n, k, alpha, (const char*)A + i * sa * bytes(at), at, lda,
                     (const char*)B + i * sb * bytes(bt), bt, ldb, beta, (char*)C + i * sc * bytes(ct), ct, ldc, compute, algorithm);
  return s;
}
