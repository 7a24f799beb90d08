// cuDNN: convolutions become operations. The replayer chooses their algorithms and has its own workspace, so
// questions for these are answered with the usual algorithm and no bytes.
#if __has_include(<cudnn.h>)
#include "recorder_dnn.h"

#include <cstring>

namespace recorder {
namespace {

struct Handle {
    cudaStream_t stream = nullptr;
};

Handle& handle_of(cudnnHandle_t handle) { return *reinterpret_cast<Handle*>(handle); }

constexpr cudnnConvolutionFwdAlgo_t kForward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
constexpr cudnnConvolutionBwdDataAlgo_t kTransposed = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
// Whether the candidate asked which algorithm to use, forward and transposed.
bool asked[2] = {false, false};

std::vector<uint32_t> unsigned_of(const std::vector<int>& values) { return {values.begin(), values.end()}; }

DnnTensor tensor(const TensorDescriptor& d, const void* at) {
    return {reinterpret_cast<uint64_t>(at), static_cast<uint32_t>(d.dtype), unsigned_of(d.dims),
            unsigned_of(d.strides)};
}

template <class T>
int64_t bits(const void* value) {
    T loaded;
    memcpy(&loaded, value, sizeof loaded);
    return static_cast<int64_t>(loaded);
}

// Factors are doubles where the tensors are.
Scalar factor(cudnnDataType_t dtype, const void* value) {
    if (dtype == CUDNN_DATA_DOUBLE) return {"f64", bits<uint64_t>(value), false};
    return {"f32", bits<uint32_t>(value), false};
}

// Whether a factor is 0 or -0.
bool is_zero(const Scalar& factor) {
    const uint64_t sign = factor.type[1] == '6' ? uint64_t(1) << 63 : uint64_t(1) << 31;
    return !(static_cast<uint64_t>(factor.bits) & ~sign);
}

// A function's arguments, but for those that are not recorded.
struct Call {
    const char* function;
    cudnnHandle_t handle;
    const void* alpha;
    const TensorDescriptor* source;
    const void* source_at;
    const FilterDescriptor* filter;
    const void* filter_at;
    const ConvolutionDescriptor* convolution;
    int algorithm;
    const void* beta;
    const TensorDescriptor* result;
    const void* result_at;
    bool transposed;
};

bool is_known(cudnnDataType_t dtype) {
    return dtype == CUDNN_DATA_FLOAT || dtype == CUDNN_DATA_DOUBLE || dtype == CUDNN_DATA_HALF ||
           dtype == CUDNN_DATA_BFLOAT16;
}

cudnnStatus_t convolve(const Call& call, const std::optional<DnnEpilogue>& epilogue) {
    enter(call.function);
    for (const void* each : {static_cast<const void*>(call.handle), call.alpha, call.source_at, call.filter_at,
                             call.beta, call.result_at})
        if (!each) return CUDNN_STATUS_BAD_PARAM;
    for (const void* each : {static_cast<const void*>(call.source), static_cast<const void*>(call.filter),
                             static_cast<const void*>(call.result), static_cast<const void*>(call.convolution)})
        if (!each) return CUDNN_STATUS_BAD_PARAM;
    if (!is_known(call.source->dtype)) {
        refuse(std::string("calls ") + call.function + " with the data type " + std::to_string(call.source->dtype));
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    Stream* stream = find_stream(handle_of(call.handle).stream);
    if (!stream) return CUDNN_STATUS_EXECUTION_FAILED;
    const ConvolutionDescriptor& c = *call.convolution;
    const int usual = call.transposed ? static_cast<int>(kTransposed) : static_cast<int>(kForward);
    Convolution made = {};
    made.transposed = call.transposed;
    made.source = tensor(*call.source, call.source_at);
    made.filter = {reinterpret_cast<uint64_t>(call.filter_at), static_cast<uint32_t>(call.filter->dtype),
                   static_cast<uint32_t>(call.filter->format), unsigned_of(call.filter->dims)};
    made.result = tensor(*call.result, call.result_at);
    made.padding = unsigned_of(c.padding);
    made.steps = unsigned_of(c.steps);
    made.dilation = unsigned_of(c.dilation);
    made.groups = static_cast<uint32_t>(c.groups);
    made.mode = static_cast<uint32_t>(c.mode);
    made.compute = static_cast<uint32_t>(c.compute);
    made.math = static_cast<uint32_t>(c.math);
    made.alpha = factor(call.source->dtype, call.alpha);
    made.beta = factor(call.source->dtype, call.beta);
    if (!asked[call.transposed] || call.algorithm != usual) made.algorithm = static_cast<uint32_t>(call.algorithm);
    made.epilogue = epilogue;
    if (epilogue && !epilogue->residual) made.beta.bits = 0;
    return record(*stream, std::move(made)) ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

template <class Performance, class Algorithm>
cudnnStatus_t answer(bool transposed, Algorithm usual, const ConvolutionDescriptor* convolution, int requested,
                     int* returned, Performance* results) {
    if (!convolution || !returned || !results || requested < 1) return CUDNN_STATUS_BAD_PARAM;
    asked[transposed] = true;
    *returned = 1;
    *results = {};
    results->algo = usual;
    results->status = CUDNN_STATUS_SUCCESS;
    results->time = -1;
    results->determinism = CUDNN_DETERMINISTIC;
    results->mathType = convolution->math;
    return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace recorder

using namespace recorder;

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    if (!handle) return CUDNN_STATUS_BAD_PARAM;
    handle_of(handle).stream = stream;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
    *stream = handle_of(handle).stream;
    return CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS"
           : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                  : "CUDNN_STATUS_BAD_PARAM";
}
void cudnnGetLastErrorString(char* message, size_t bytes) {
    if (bytes) *message = 0;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t, int* count) {
    *count = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                     cudnnFilterDescriptor_t, cudnnConvolutionDescriptor_t c,
                                                     cudnnTensorDescriptor_t, int requested, int* returned,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
    return answer(false, kForward, of(c), requested, returned, results);
}
cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                   cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t,
                                                   int requested, int* returned,
                                                   cudnnConvolutionFwdAlgoPerf_t* results) {
    return answer(false, kForward, of(c), requested, returned, results);
}
cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t, cudnnTensorDescriptor_t, const void*,
                                                     cudnnFilterDescriptor_t, const void*,
                                                     cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t, void*,
                                                     int requested, int* returned,
                                                     cudnnConvolutionFwdAlgoPerf_t* results, void*, size_t) {
    return answer(false, kForward, of(c), requested, returned, results);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                      cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t, size_t* bytes) {
    *bytes = 0;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t xd,
                                      const void* x, cudnnFilterDescriptor_t wd, const void* w,
                                      cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algorithm, void*,
                                      size_t, const void* beta, cudnnTensorDescriptor_t yd, void* y) {
    return convolve({__func__, handle, alpha, of(xd), x, of(wd), w, of(c), algorithm, beta, of(yd), y, false}, {});
}
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t xd, const void* x, cudnnFilterDescriptor_t wd,
    const void* w, cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algorithm, void*, size_t,
    const void* alpha2, cudnnTensorDescriptor_t zd, const void* z, cudnnTensorDescriptor_t bd, const void* bias,
    cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t yd, void* y) {
    if (!alpha2 || !bd || !bias || !activation || !xd || !yd) return CUDNN_STATUS_BAD_PARAM;
    const cudnnActivationMode_t mode = of(activation)->mode;
    if (mode != CUDNN_ACTIVATION_RELU && mode != CUDNN_ACTIVATION_IDENTITY) return CUDNN_STATUS_NOT_SUPPORTED;
    const bool reads = !is_zero(factor(of(xd)->dtype, alpha2));
    if (reads && (!zd || !z || of(zd)->dims != of(yd)->dims || of(zd)->strides != of(yd)->strides))
        return CUDNN_STATUS_BAD_PARAM;
    DnnEpilogue epilogue = {tensor(*of(bd), bias), std::nullopt, static_cast<uint32_t>(mode)};
    if (reads) epilogue.residual = reinterpret_cast<uint64_t>(z);
    return convolve({__func__, handle, alpha, of(xd), x, of(wd), w, of(c), algorithm, alpha2, of(yd), y, false},
                    epilogue);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t, int* count) {
    *count = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                          cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t c,
                                                          cudnnTensorDescriptor_t, int requested, int* returned,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
    return answer(true, kTransposed, of(c), requested, returned, results);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                        cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t c,
                                                        cudnnTensorDescriptor_t, int requested, int* returned,
                                                        cudnnConvolutionBwdDataAlgoPerf_t* results) {
    return answer(true, kTransposed, of(c), requested, returned, results);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t, cudnnFilterDescriptor_t, const void*,
                                                          cudnnTensorDescriptor_t, const void*,
                                                          cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t,
                                                          void*, int requested, int* returned,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results, void*, size_t) {
    return answer(true, kTransposed, of(c), requested, returned, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t,
                                                           size_t* bytes) {
    *bytes = 0;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t wd,
                                           const void* w, cudnnTensorDescriptor_t xd, const void* x,
                                           cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void*, size_t, const void* beta, cudnnTensorDescriptor_t yd, void* y) {
    return convolve({__func__, handle, alpha, of(xd), x, of(wd), w, of(c), algorithm, beta, of(yd), y, true}, {});
}

}  // extern "C"
#endif
