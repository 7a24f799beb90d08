// cuBLAS: products of matrices become operations. Everything else of the library is refused by name.
#include <cublas_api.h>

#include <cstring>

#include "recorder.h"

namespace recorder {
namespace {

struct Handle {
    cudaStream_t stream = nullptr;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    cublasAtomicsMode_t atomics = CUBLAS_ATOMICS_NOT_ALLOWED;
};

Handle& of(cublasHandle_t handle) { return *reinterpret_cast<Handle*>(handle); }

template <class T>
int64_t bits(const void* value) {
    T loaded;
    memcpy(&loaded, value, sizeof loaded);
    return static_cast<int64_t>(loaded);
}

// The factors' type follows from how the product is computed.
Scalar scalar(const void* value, cublasComputeType_t compute) {
    switch (compute) {
        case CUBLAS_COMPUTE_16F:
        case CUBLAS_COMPUTE_16F_PEDANTIC:
            return {"f16", bits<uint16_t>(value), false};
        case CUBLAS_COMPUTE_64F:
        case CUBLAS_COMPUTE_64F_PEDANTIC:
            return {"f64", bits<uint64_t>(value), false};
        case CUBLAS_COMPUTE_32I:
        case CUBLAS_COMPUTE_32I_PEDANTIC:
            return {"i32", bits<int32_t>(value), true};
        default:
            return {"f32", bits<uint32_t>(value), false};
    }
}

bool is_complex(cudaDataType type) {
    switch (type) {
        case CUDA_R_16F:
        case CUDA_R_16BF:
        case CUDA_R_32F:
        case CUDA_R_64F:
        case CUDA_R_8I:
        case CUDA_R_32I:
            return false;
        default:
            return true;
    }
}

struct Matrix {
    const void* data;
    cudaDataType type;
    int64_t leading;
    long long stride;
};

struct Product {
    const char* function;
    cublasOperation_t transpose[2];
    int64_t sizes[3];
    const void *alpha, *beta;
    Matrix a, b, c;
    int64_t batch;
    cublasComputeType_t compute;
    int algorithm;
    bool pointers = false;  // the matrices are arrays of addresses
};

cublasStatus_t multiply(cublasHandle_t handle, const Product& p) {
    enter(p.function);
    for (const Matrix* m : {&p.a, &p.b, &p.c}) {
        if (!is_complex(m->type)) continue;
        refuse(std::string("calls ") + p.function + " with the data type " + std::to_string(m->type));
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (int64_t size : p.sizes)
        if (size < 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (p.batch < 0 || !p.alpha || !p.beta) return CUBLAS_STATUS_INVALID_VALUE;
    if (!p.sizes[0] || !p.sizes[1] || !p.sizes[2] || !p.batch) return CUBLAS_STATUS_SUCCESS;
    Stream* stream = find_stream(of(handle).stream);
    if (!stream) return CUBLAS_STATUS_EXECUTION_FAILED;
    Gemm made = {};
    const Matrix* matrices[] = {&p.a, &p.b, &p.c};
    for (int i = 0; i < 3; i++) {
        made.sizes[i] = p.sizes[i];
        made.operands[i] = reinterpret_cast<uint64_t>(matrices[i]->data);
        made.types[i] = static_cast<uint32_t>(matrices[i]->type);
        made.leading[i] = matrices[i]->leading;
        made.strides[i] = matrices[i]->stride;
    }
    for (int i = 0; i < 2; i++) made.transpose[i] = p.transpose[i];
    made.batch = static_cast<uint32_t>(p.batch);
    made.alpha = scalar(p.alpha, p.compute);
    made.beta = scalar(p.beta, p.compute);
    made.compute = static_cast<uint32_t>(p.compute);
    made.math = static_cast<uint32_t>(of(handle).math);
    made.algorithm = p.algorithm;
    made.pointers = p.pointers;
    for (const Matrix* m : matrices)
        if (p.pointers && !is_device(m->data)) refuse(std::string("passes ") + p.function + " an array of the host");
    return record(*stream, made) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

struct VectorProduct {
    const char* function;
    cublasOperation_t transpose;
    int64_t sizes[2];
    const void *alpha, *beta;
    Matrix a, x, y;  // the vectors' leading dimensions are the steps between their elements
    int64_t batch;
};

cublasStatus_t multiply_vector(cublasHandle_t handle, const VectorProduct& p) {
    enter(p.function);
    const int64_t rows = p.sizes[0], columns = p.sizes[1];
    if (rows < 0 || columns < 0 || p.batch < 0 || !p.alpha || !p.beta || !p.x.leading || !p.y.leading)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!rows || !columns || !p.batch) return CUBLAS_STATUS_SUCCESS;
    if (p.x.leading < 0 || p.y.leading < 0) {
        refuse(std::string("calls ") + p.function + " with a vector that begins at its end");
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    Stream* stream = find_stream(of(handle).stream);
    if (!stream) return CUBLAS_STATUS_EXECUTION_FAILED;
    const cublasComputeType_t compute = p.a.type == CUDA_R_64F ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
    Gemv made = {};
    made.transpose = p.transpose;
    const Matrix* matrices[] = {&p.a, &p.x, &p.y};
    for (int i = 0; i < 3; i++) {
        made.operands[i] = reinterpret_cast<uint64_t>(matrices[i]->data);
        made.strides[i] = matrices[i]->stride;
    }
    made.sizes[0] = rows;
    made.sizes[1] = columns;
    made.dtype = static_cast<uint32_t>(p.a.type);
    made.leading = p.a.leading;
    made.steps[0] = p.x.leading;
    made.steps[1] = p.y.leading;
    made.batch = static_cast<uint32_t>(p.batch);
    made.alpha = scalar(p.alpha, compute);
    made.beta = scalar(p.beta, compute);
    made.math = static_cast<uint32_t>(of(handle).math);
    return record(*stream, made) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace recorder

using namespace recorder;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
    *handle = reinterpret_cast<cublasHandle_t>(new Handle);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    of(handle).stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
    *stream = of(handle).stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t math) {
    of(handle).math = math;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* math) {
    *math = of(handle).math;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
    of(handle).atomics = mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t* mode) {
    *mode = of(handle).atomics;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t mode) {
    if (mode == CUBLAS_POINTER_MODE_HOST) return CUBLAS_STATUS_SUCCESS;
    refuse("has cuBLAS read its factors from the device (cublasSetPointerMode)");
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t* mode) {
    *mode = CUBLAS_POINTER_MODE_HOST;
    return CUBLAS_STATUS_SUCCESS;
}
// The replayer gives every stream a workspace of its own.
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetSmCountTarget(cublasHandle_t, int count) {
    if (!count) return CUBLAS_STATUS_SUCCESS;
    refuse("limits the multiprocessors of cuBLAS (cublasSetSmCountTarget)");
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
    *value = type == MAJOR_VERSION   ? CUBLAS_VER_MAJOR
             : type == MINOR_VERSION ? CUBLAS_VER_MINOR
                                     : CUBLAS_VER_PATCH;
    return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE";
}
const char* cublasGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "an unsupported value or parameter was passed";
}

// cublasSgemm and its like, with int and with int64_t.
#define GEMM(NAME, SUFFIX, INTEGER, T, TYPE, COMPUTE)                                                              \
    cublasStatus_t NAME##SUFFIX(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, INTEGER m,      \
                                INTEGER n, INTEGER k, const T* alpha, const T* a, INTEGER lda, const T* b,         \
                                INTEGER ldb, const T* beta, T* c, INTEGER ldc) {                                   \
        return multiply(handle, {#NAME, {ta, tb}, {m, n, k}, alpha, beta, {a, TYPE, lda, 0}, {b, TYPE, ldb, 0},    \
                                 {c, TYPE, ldc, 0}, 1, COMPUTE, CUBLAS_GEMM_DEFAULT});                             \
    }
#define BATCHED(NAME, SUFFIX, INTEGER, T, TYPE, COMPUTE)                                                           \
    cublasStatus_t NAME##SUFFIX(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, INTEGER m,      \
                                INTEGER n, INTEGER k, const T* alpha, const T* a, INTEGER lda, long long sa,       \
                                const T* b, INTEGER ldb, long long sb, const T* beta, T* c, INTEGER ldc,           \
                                long long sc, INTEGER batch) {                                                     \
        return multiply(handle, {#NAME, {ta, tb}, {m, n, k}, alpha, beta, {a, TYPE, lda, sa}, {b, TYPE, ldb, sb},  \
                                 {c, TYPE, ldc, sc}, batch, COMPUTE, CUBLAS_GEMM_DEFAULT});                        \
    }
#define ARRAYS(NAME, SUFFIX, INTEGER, T, TYPE, COMPUTE)                                                            \
    cublasStatus_t NAME##SUFFIX(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, INTEGER m,      \
                                INTEGER n, INTEGER k, const T* alpha, const T* const a[], INTEGER lda,             \
                                const T* const b[], INTEGER ldb, const T* beta, T* const c[], INTEGER ldc,         \
                                INTEGER batch) {                                                                   \
        return multiply(handle, {#NAME, {ta, tb}, {m, n, k}, alpha, beta, {a, TYPE, lda, 0}, {b, TYPE, ldb, 0},    \
                                 {c, TYPE, ldc, 0}, batch, COMPUTE, CUBLAS_GEMM_DEFAULT, true});                   \
    }
#define GEMV(NAME, SUFFIX, INTEGER, T, TYPE, COMPUTE)                                                              \
    cublasStatus_t NAME##SUFFIX(cublasHandle_t handle, cublasOperation_t t, INTEGER m, INTEGER n, const T* alpha,  \
                                const T* a, INTEGER lda, const T* x, INTEGER incx, const T* beta, T* y,            \
                                INTEGER incy) {                                                                    \
        return multiply_vector(handle, {#NAME, t, {m, n}, alpha, beta, {a, TYPE, lda, 0}, {x, TYPE, incx, 0},      \
                                        {y, TYPE, incy, 0}, 1});                                                   \
    }
#define GEMVS(NAME, SUFFIX, INTEGER, T, TYPE, COMPUTE)                                                             \
    cublasStatus_t NAME##SUFFIX(cublasHandle_t handle, cublasOperation_t t, INTEGER m, INTEGER n, const T* alpha,  \
                                const T* a, INTEGER lda, long long sa, const T* x, INTEGER incx, long long sx,     \
                                const T* beta, T* y, INTEGER incy, long long sy, INTEGER batch) {                  \
        return multiply_vector(handle, {#NAME, t, {m, n}, alpha, beta, {a, TYPE, lda, sa}, {x, TYPE, incx, sx},    \
                                        {y, TYPE, incy, sy}, batch});                                              \
    }
#define EX(SUFFIX, INTEGER)                                                                                        \
    cublasStatus_t cublasGemmEx##SUFFIX(                                                                           \
        cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, INTEGER m, INTEGER n, INTEGER k,        \
        const void* alpha, const void* a, cudaDataType at, INTEGER lda, const void* b, cudaDataType bt,            \
        INTEGER ldb, const void* beta, void* c, cudaDataType ct, INTEGER ldc, cublasComputeType_t compute,         \
        cublasGemmAlgo_t algorithm) {                                                                              \
        return multiply(handle, {"cublasGemmEx", {ta, tb}, {m, n, k}, alpha, beta, {a, at, lda, 0},                \
                                 {b, bt, ldb, 0}, {c, ct, ldc, 0}, 1, compute, algorithm});                        \
    }                                                                                                              \
    cublasStatus_t cublasGemmStridedBatchedEx##SUFFIX(                                                             \
        cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, INTEGER m, INTEGER n, INTEGER k,        \
        const void* alpha, const void* a, cudaDataType at, INTEGER lda, long long sa, const void* b,               \
        cudaDataType bt, INTEGER ldb, long long sb, const void* beta, void* c, cudaDataType ct, INTEGER ldc,       \
        long long sc, INTEGER batch, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {                    \
        return multiply(handle, {"cublasGemmStridedBatchedEx", {ta, tb}, {m, n, k}, alpha, beta, {a, at, lda, sa}, \
                                 {b, bt, ldb, sb}, {c, ct, ldc, sc}, batch, compute, algorithm});                  \
    }
#define ARRAYS_EX(SUFFIX, INTEGER)                                                                                 \
    cublasStatus_t cublasGemmBatchedEx##SUFFIX(                                                                    \
        cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, INTEGER m, INTEGER n, INTEGER k,        \
        const void* alpha, const void* const a[], cudaDataType at, INTEGER lda, const void* const b[],             \
        cudaDataType bt, INTEGER ldb, const void* beta, void* const c[], cudaDataType ct, INTEGER ldc,             \
        INTEGER batch, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {                                  \
        return multiply(handle, {"cublasGemmBatchedEx", {ta, tb}, {m, n, k}, alpha, beta, {a, at, lda, 0},         \
                                 {b, bt, ldb, 0}, {c, ct, ldc, 0}, batch, compute, algorithm, true});              \
    }
#define BOTH(MACRO, NAME, SUFFIX, T, TYPE, COMPUTE)   \
    MACRO(NAME, SUFFIX, int, T, TYPE, COMPUTE)        \
    MACRO(NAME, SUFFIX##_64, int64_t, T, TYPE, COMPUTE)

BOTH(GEMM, cublasSgemm, _v2, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
BOTH(GEMM, cublasDgemm, _v2, double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
BOTH(GEMM, cublasHgemm, , __half, CUDA_R_16F, CUBLAS_COMPUTE_16F)
BOTH(BATCHED, cublasSgemmStridedBatched, , float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
BOTH(BATCHED, cublasDgemmStridedBatched, , double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
BOTH(BATCHED, cublasHgemmStridedBatched, , __half, CUDA_R_16F, CUBLAS_COMPUTE_16F)
BOTH(ARRAYS, cublasSgemmBatched, , float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
BOTH(ARRAYS, cublasDgemmBatched, , double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
BOTH(ARRAYS, cublasHgemmBatched, , __half, CUDA_R_16F, CUBLAS_COMPUTE_16F)
BOTH(GEMV, cublasSgemv, _v2, float, CUDA_R_32F, )
BOTH(GEMV, cublasDgemv, _v2, double, CUDA_R_64F, )
BOTH(GEMVS, cublasSgemvStridedBatched, , float, CUDA_R_32F, )
BOTH(GEMVS, cublasDgemvStridedBatched, , double, CUDA_R_64F, )
ARRAYS_EX(, int)
ARRAYS_EX(_64, int64_t)
EX(, int)
EX(_64, int64_t)

}  // extern "C"
