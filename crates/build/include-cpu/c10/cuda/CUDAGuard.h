// The cpu device has one device, so guards have nothing to restore.
#pragma once

#include <optional>

#include <c10/cuda/CUDAStream.h>

namespace c10 {
namespace cuda {

struct CUDAGuard {
    explicit CUDAGuard(c10::DeviceIndex) {}
    explicit CUDAGuard(c10::Device) {}
    void set_device(c10::Device) {}
    void reset_device(c10::Device) {}
    void set_index(c10::DeviceIndex) {}
};

struct OptionalCUDAGuard {
    OptionalCUDAGuard() {}
    template <typename T>
    explicit OptionalCUDAGuard(const T&) {}
    void set_device(c10::Device) {}
    void reset() {}
};

struct CUDAStreamGuard {
    explicit CUDAStreamGuard(CUDAStream) {}
    explicit CUDAStreamGuard(c10::Stream) {}
};

}  // namespace cuda
}  // namespace c10

namespace at {
namespace cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
}  // namespace cuda
}  // namespace at
