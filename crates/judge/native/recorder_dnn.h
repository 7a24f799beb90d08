// What cuDNN's descriptors hold.
#pragma once
#include <cudnn.h>

#include "recorder.h"

namespace recorder __attribute__((visibility("hidden"))) {

struct TensorDescriptor {
    cudnnDataType_t dtype;
    std::vector<int> dims, strides;
};

struct FilterDescriptor {
    cudnnDataType_t dtype;
    cudnnTensorFormat_t format;
    std::vector<int> dims;
};

struct ConvolutionDescriptor {
    std::vector<int> padding, steps, dilation;
    cudnnConvolutionMode_t mode;
    cudnnDataType_t compute;
    cudnnMathType_t math = CUDNN_DEFAULT_MATH;
    int groups = 1;
};

struct ActivationDescriptor {
    cudnnActivationMode_t mode;
};

// A descriptor by its handle.
inline TensorDescriptor* of(cudnnTensorDescriptor_t handle) { return reinterpret_cast<TensorDescriptor*>(handle); }
inline FilterDescriptor* of(cudnnFilterDescriptor_t handle) { return reinterpret_cast<FilterDescriptor*>(handle); }
inline ConvolutionDescriptor* of(cudnnConvolutionDescriptor_t handle) {
    return reinterpret_cast<ConvolutionDescriptor*>(handle);
}
inline ActivationDescriptor* of(cudnnActivationDescriptor_t handle) {
    return reinterpret_cast<ActivationDescriptor*>(handle);
}

}  // namespace recorder
