// cuDNN's descriptors of tensors, filters and convolutions.
#if __has_include(<cudnn.h>)
#include "recorder_dnn.h"

#include <algorithm>

namespace recorder {
namespace {

bool all_positive(const std::vector<int>& values) {
    return std::all_of(values.begin(), values.end(), [](int v) { return v > 0; });
}
bool none_negative(const std::vector<int>& values) {
    return std::all_of(values.begin(), values.end(), [](int v) { return v >= 0; });
}

size_t bytes_of(cudnnDataType_t dtype) {
    switch (dtype) {
        case CUDNN_DATA_DOUBLE:
        case CUDNN_DATA_INT64:
            return 8;
        case CUDNN_DATA_FLOAT:
        case CUDNN_DATA_INT32:
            return 4;
        case CUDNN_DATA_HALF:
        case CUDNN_DATA_BFLOAT16:
            return 2;
        default:
            return 1;
    }
}

// Strides without gaps.
std::vector<int> packed(cudnnTensorFormat_t format, const std::vector<int>& dims) {
    std::vector<int> strides(dims.size(), 1);
    if (format == CUDNN_TENSOR_NHWC) {
        int next = dims[1];
        for (size_t i = dims.size() - 1; i > 1; i--) {
            strides[i] = next;
            next *= dims[i];
        }
        strides[0] = next;
    } else {
        for (size_t i = dims.size() - 1; i > 0; i--) strides[i - 1] = strides[i] * dims[i];
    }
    return strides;
}

cudnnStatus_t set(cudnnTensorDescriptor_t handle, cudnnDataType_t dtype, std::vector<int> dims,
                  std::vector<int> strides) {
    if (!handle || !all_positive(dims) || !none_negative(strides)) return CUDNN_STATUS_BAD_PARAM;
    *of(handle) = {dtype, std::move(dims), std::move(strides)};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set(cudnnTensorDescriptor_t handle, cudnnTensorFormat_t format, cudnnDataType_t dtype,
                  std::vector<int> dims) {
    if (format == CUDNN_TENSOR_NCHW_VECT_C) {
        refuse("describes a tensor to cuDNN with vectors of channels (CUDNN_TENSOR_NCHW_VECT_C)");
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    if (dims.size() < 3) return CUDNN_STATUS_BAD_PARAM;
    std::vector<int> strides = packed(format, dims);
    return set(handle, dtype, std::move(dims), std::move(strides));
}

cudnnStatus_t set(cudnnFilterDescriptor_t handle, cudnnDataType_t dtype, cudnnTensorFormat_t format,
                  std::vector<int> dims) {
    if (format == CUDNN_TENSOR_NCHW_VECT_C) {
        refuse("describes a filter to cuDNN with vectors of channels (CUDNN_TENSOR_NCHW_VECT_C)");
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    if (!handle || !all_positive(dims)) return CUDNN_STATUS_BAD_PARAM;
    *of(handle) = {dtype, format, std::move(dims)};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set(cudnnConvolutionDescriptor_t handle, std::vector<int> padding, std::vector<int> steps,
                  std::vector<int> dilation, cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
    if (!handle || !none_negative(padding) || !all_positive(steps) || !all_positive(dilation))
        return CUDNN_STATUS_BAD_PARAM;
    ConvolutionDescriptor& descriptor = *of(handle);
    descriptor.padding = std::move(padding);
    descriptor.steps = std::move(steps);
    descriptor.dilation = std::move(dilation);
    descriptor.mode = mode;
    descriptor.compute = compute;
    return CUDNN_STATUS_SUCCESS;
}

void copy(const std::vector<int>& from, int most, int* to) {
    std::copy_n(from.begin(), std::min(static_cast<size_t>(std::max(most, 0)), from.size()), to);
}

bool output(const ConvolutionDescriptor& c, const TensorDescriptor& x, const FilterDescriptor& w,
            std::vector<int>& dims) {
    const size_t space = c.padding.size();
    if (x.dims.size() != space + 2 || w.dims.size() != space + 2) return false;
    dims = {x.dims[0], w.dims[0]};
    for (size_t i = 0; i < space; i++) {
        const int64_t covered = (int64_t(w.dims[i + 2]) - 1) * c.dilation[i] + 1;
        const int64_t room = int64_t(x.dims[i + 2]) + 2 * int64_t(c.padding[i]) - covered;
        if (room < 0) return false;
        dims.push_back(static_cast<int>(room / c.steps[i] + 1));
    }
    return true;
}

template <class Handle, class Descriptor>
cudnnStatus_t make(Handle* handle, Descriptor*) {
    *handle = reinterpret_cast<Handle>(new Descriptor());
    return CUDNN_STATUS_SUCCESS;
}
template <class Handle>
cudnnStatus_t end(Handle handle) {
    delete of(handle);
    return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace recorder

using namespace recorder;

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* out) {
    return make(out, static_cast<TensorDescriptor*>(nullptr));
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) { return end(d); }
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                         cudnnDataType_t dtype, int n, int c, int h, int w) {
    return set(d, format, dtype, {n, c, h, w});
}
cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t d, cudnnDataType_t dtype, int n, int c, int h,
                                           int w, int sn, int sc, int sh, int sw) {
    return set(d, dtype, {n, c, h, w}, {sn, sc, sh, sw});
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t dtype, int rank,
                                         const int* dims, const int* strides) {
    if (rank < 3 || rank > CUDNN_DIM_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
    return set(d, dtype, {dims, dims + rank}, {strides, strides + rank});
}
cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                           cudnnDataType_t dtype, int rank, const int* dims) {
    if (rank < 3 || rank > CUDNN_DIM_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
    return set(d, format, dtype, {dims, dims + rank});
}
cudnnStatus_t cudnnGetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t* dtype, int* n, int* c, int* h,
                                         int* w, int* sn, int* sc, int* sh, int* sw) {
    const TensorDescriptor& t = *of(d);
    if (t.dims.size() != 4) return CUDNN_STATUS_BAD_PARAM;
    *dtype = t.dtype;
    int* const dims[] = {n, c, h, w};
    int* const strides[] = {sn, sc, sh, sw};
    for (size_t i = 0; i < 4; i++) {
        *dims[i] = t.dims[i];
        *strides[i] = t.strides[i];
    }
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t d, int most, cudnnDataType_t* dtype, int* rank,
                                         int* dims, int* strides) {
    const TensorDescriptor& t = *of(d);
    *dtype = t.dtype;
    *rank = static_cast<int>(t.dims.size());
    copy(t.dims, most, dims);
    copy(t.strides, most, strides);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t d, size_t* bytes) {
    const TensorDescriptor& t = *of(d);
    size_t last = 0;
    for (size_t i = 0; i < t.dims.size(); i++) last += size_t(t.dims[i] - 1) * size_t(t.strides[i]);
    *bytes = (last + 1) * bytes_of(t.dtype);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* out) {
    return make(out, static_cast<FilterDescriptor*>(nullptr));
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) { return end(d); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t dtype,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    return set(d, dtype, format, {k, c, h, w});
}
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t dtype,
                                         cudnnTensorFormat_t format, int rank, const int* dims) {
    if (rank < 3 || rank > CUDNN_DIM_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
    return set(d, dtype, format, {dims, dims + rank});
}
cudnnStatus_t cudnnGetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t* dtype,
                                         cudnnTensorFormat_t* format, int* k, int* c, int* h, int* w) {
    const FilterDescriptor& f = *of(d);
    if (f.dims.size() != 4) return CUDNN_STATUS_BAD_PARAM;
    *dtype = f.dtype;
    *format = f.format;
    int* const dims[] = {k, c, h, w};
    for (size_t i = 0; i < 4; i++) *dims[i] = f.dims[i];
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetFilterNdDescriptor(cudnnFilterDescriptor_t d, int most, cudnnDataType_t* dtype,
                                         cudnnTensorFormat_t* format, int* rank, int* dims) {
    const FilterDescriptor& f = *of(d);
    *dtype = f.dtype;
    *format = f.format;
    *rank = static_cast<int>(f.dims.size());
    copy(f.dims, most, dims);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetFilterSizeInBytes(cudnnFilterDescriptor_t d, size_t* bytes) {
    *bytes = bytes_of(of(d)->dtype);
    for (const int extent : of(d)->dims) *bytes *= size_t(extent);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* out) {
    return make(out, static_cast<ConvolutionDescriptor*>(nullptr));
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) { return end(d); }
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int ph, int pw, int sh, int sw, int dh,
                                              int dw, cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
    return set(d, {ph, pw}, {sh, sw}, {dh, dw}, mode, compute);
}
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int rank, const int* padding,
                                              const int* steps, const int* dilation, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
    if (rank < 1 || rank > CUDNN_DIM_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
    return set(d, {padding, padding + rank}, {steps, steps + rank}, {dilation, dilation + rank}, mode, compute);
}
cudnnStatus_t cudnnGetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int* ph, int* pw, int* sh, int* sw,
                                              int* dh, int* dw, cudnnConvolutionMode_t* mode,
                                              cudnnDataType_t* compute) {
    const ConvolutionDescriptor& c = *of(d);
    if (c.padding.size() != 2) return CUDNN_STATUS_BAD_PARAM;
    *ph = c.padding[0], *pw = c.padding[1];
    *sh = c.steps[0], *sw = c.steps[1];
    *dh = c.dilation[0], *dw = c.dilation[1];
    *mode = c.mode;
    *compute = c.compute;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int most, int* rank, int* padding,
                                              int* steps, int* dilation, cudnnConvolutionMode_t* mode,
                                              cudnnDataType_t* compute) {
    const ConvolutionDescriptor& c = *of(d);
    *rank = static_cast<int>(c.padding.size());
    copy(c.padding, most, padding);
    copy(c.steps, most, steps);
    copy(c.dilation, most, dilation);
    *mode = c.mode;
    *compute = c.compute;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
    of(d)->math = math;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t* math) {
    *math = of(d)->math;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups) {
    if (groups < 1) return CUDNN_STATUS_BAD_PARAM;
    of(d)->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int* groups) {
    *groups = of(d)->groups;
    return CUDNN_STATUS_SUCCESS;
}
// Reorders filters of int8 only.
cudnnStatus_t cudnnSetConvolutionReorderType(cudnnConvolutionDescriptor_t, cudnnReorderType_t) {
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t d, cudnnTensorDescriptor_t x,
                                                    cudnnFilterDescriptor_t filter, int* n, int* c, int* h, int* w) {
    std::vector<int> found;
    if (!output(*of(d), *of(x), *of(filter), found) || found.size() != 4) return CUDNN_STATUS_BAD_PARAM;
    *n = found[0], *c = found[1], *h = found[2], *w = found[3];
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(cudnnConvolutionDescriptor_t d, cudnnTensorDescriptor_t x,
                                                    cudnnFilterDescriptor_t w, int most, int* dims) {
    std::vector<int> found;
    if (!output(*of(d), *of(x), *of(w), found)) return CUDNN_STATUS_BAD_PARAM;
    copy(found, most, dims);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* out) {
    return make(out, static_cast<ActivationDescriptor*>(nullptr));
}
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t d) { return end(d); }
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t d, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t, double) {
    *of(d) = {mode};
    return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
#endif
