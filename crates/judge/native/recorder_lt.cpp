// cuBLASLt: products become operations. The replayer chooses the algorithm, so every question for one is answered
// with the same, which needs no workspace.
#include <cublasLt.h>

#include <cstring>

#include "recorder.h"

namespace recorder {
namespace {

struct Layout {
    int32_t dtype;
    uint64_t rows, columns;
    int64_t leading;
    int32_t order, batch;
    int64_t stride;
};

struct Description {
    int32_t compute, scale;
    int32_t pointer_mode, transpose[2];
    uint32_t epilogue;
    uint64_t bias;
    int32_t bias_type;
};

// A field of a descriptor, for its attribute.
struct Field {
    void* at;
    size_t bytes;
};

Layout& of(cublasLtMatrixLayout_t handle) { return *reinterpret_cast<Layout*>(handle); }
const Layout& layout(cublasLtMatrixLayout_t handle) { return of(handle); }
Description& of(cublasLtMatmulDesc_t handle) { return *reinterpret_cast<Description*>(handle); }

// Null for what is not recorded.
Field field(Description& d, cublasLtMatmulDescAttributes_t attribute) {
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
            return {&d.compute, sizeof d.compute};
        case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
            return {&d.scale, sizeof d.scale};
        case CUBLASLT_MATMUL_DESC_POINTER_MODE:
            return {&d.pointer_mode, sizeof d.pointer_mode};
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return {&d.transpose[0], sizeof d.transpose[0]};
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return {&d.transpose[1], sizeof d.transpose[1]};
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return {&d.epilogue, sizeof d.epilogue};
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return {&d.bias, sizeof d.bias};
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return {&d.bias_type, sizeof d.bias_type};
        default:
            return {nullptr, 0};
    }
}

Field field(Layout& l, cublasLtMatrixLayoutAttribute_t attribute) {
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_TYPE:
            return {&l.dtype, sizeof l.dtype};
        case CUBLASLT_MATRIX_LAYOUT_ORDER:
            return {&l.order, sizeof l.order};
        case CUBLASLT_MATRIX_LAYOUT_ROWS:
            return {&l.rows, sizeof l.rows};
        case CUBLASLT_MATRIX_LAYOUT_COLS:
            return {&l.columns, sizeof l.columns};
        case CUBLASLT_MATRIX_LAYOUT_LD:
            return {&l.leading, sizeof l.leading};
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
            return {&l.batch, sizeof l.batch};
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
            return {&l.stride, sizeof l.stride};
        default:
            return {nullptr, 0};
    }
}

cublasStatus_t set(const char* function, int attribute, Field field, const void* value, size_t bytes) {
    enter(function);
    if (!field.at) {
        refuse(std::string("sets attribute ") + std::to_string(attribute) + " (" + function + ")");
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (!value || bytes != field.bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field.at, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t get(Field field, void* value, size_t bytes, size_t* written) {
    if (!field.at || !value || bytes < field.bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, field.at, field.bytes);
    if (written) *written = field.bytes;
    return CUBLAS_STATUS_SUCCESS;
}

Scalar factor(int32_t type, const void* value) {
    uint64_t bits = 0;
    switch (type) {
        case CUDA_R_64F:
            memcpy(&bits, value, 8);
            return {"f64", static_cast<int64_t>(bits), false};
        case CUDA_R_16F:
            memcpy(&bits, value, 2);
            return {"f16", static_cast<int64_t>(bits), false};
        case CUDA_R_32I: {
            int32_t number;
            memcpy(&number, value, 4);
            return {"i32", number, true};
        }
        default:
            memcpy(&bits, value, 4);
            return {"f32", static_cast<int64_t>(bits), false};
    }
}

LtMatrix matrix(const Layout& l, const void* at) {
    return {reinterpret_cast<uint64_t>(at),
            static_cast<uint32_t>(l.dtype),
            {static_cast<int64_t>(l.rows), static_cast<int64_t>(l.columns)},
            l.leading,
            l.order == CUBLASLT_ORDER_ROW,
            static_cast<uint32_t>(l.batch),
            l.stride};
}

// Why this product is not recorded, if it is not.
const char* unknown(const Description& d, const Layout& result) {
    if (d.pointer_mode != CUBLASLT_POINTER_MODE_HOST) return "has cuBLASLt read its factors from the device";
    const bool has_bias = d.epilogue & CUBLASLT_EPILOGUE_BIAS;
    const uint32_t rest = d.epilogue & ~static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS);
    const bool known = rest == CUBLASLT_EPILOGUE_RELU || rest == CUBLASLT_EPILOGUE_GELU ||
                       rest == (has_bias ? 0u : static_cast<uint32_t>(CUBLASLT_EPILOGUE_DEFAULT));
    if (!known) return "multiplies by cublasLtMatmul with an epilogue other than ReLU, GELU and a bias";
    if (has_bias && d.bias_type >= 0 && d.bias_type != result.dtype)
        return "multiplies by cublasLtMatmul with a bias of another type than the result";
    return nullptr;
}

}  // namespace
}  // namespace recorder

using namespace recorder;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE";
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType scale) {
    *out = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{
        compute, scale, CUBLASLT_POINTER_MODE_HOST, {0, 0}, CUBLASLT_EPILOGUE_DEFAULT, 0, -1});
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    delete &of(d);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
    return set(__func__, attribute, field(of(d), attribute), value, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute,
                                              void* value, size_t bytes, size_t* written) {
    return get(field(of(d), attribute), value, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType dtype, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
    *out = reinterpret_cast<cublasLtMatrixLayout_t>(
        new Layout{dtype, rows, columns, leading, CUBLASLT_ORDER_COL, 1, 0});
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    delete &of(l);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
    return set(__func__, attribute, field(of(l), attribute), value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute,
                                                void* value, size_t bytes, size_t* written) {
    return get(field(of(l), attribute), value, bytes, written);
}

// What a candidate prefers only concerns the choice of the algorithm.
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
    *out = reinterpret_cast<cublasLtMatmulPreference_t>(new int(0));
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* returned) {
    if (requested < 1 || !results || !returned) return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 1;
    memset(results, 0, sizeof *results);
    results->state = CUBLAS_STATUS_SUCCESS;
    results->wavesCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb,
                              const void* beta, const void* c, cublasLtMatrixLayout_t lc, void* d,
                              cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t*, void*, size_t,
                              cudaStream_t stream) {
    enter(__func__);
    if (!handle || !description || !alpha || !a || !la || !b || !lb || !beta || !lc || !d || !ld)
        return CUBLAS_STATUS_INVALID_VALUE;
    const Description& of_product = of(description);
    const char* why = unknown(of_product, layout(ld));
    for (cublasLtMatrixLayout_t each : {la, lb, lc, ld})
        if (layout(each).order > CUBLASLT_ORDER_ROW || layout(each).order < 0)
            why = "multiplies by cublasLtMatmul with matrices in tiles";
    if (why) {
        refuse(why);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    Stream* on = find_stream(stream);
    if (!on) return CUBLAS_STATUS_EXECUTION_FAILED;
    Matmul made = {};
    made.transpose[0] = of_product.transpose[0];
    made.transpose[1] = of_product.transpose[1];
    // Without a factor `C` is not read, and need not be there.
    made.matrices = {matrix(layout(la), a), matrix(layout(lb), b), matrix(layout(lc), c ? c : d),
                     matrix(layout(ld), d)};
    made.alpha = factor(of_product.scale, alpha);
    made.beta = factor(of_product.scale, beta);
    made.compute = static_cast<uint32_t>(of_product.compute);
    made.epilogue = of_product.epilogue;
    if (of_product.epilogue & CUBLASLT_EPILOGUE_BIAS) made.bias = of_product.bias;
    return record(*on, std::move(made)) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
