// One device, always current.
#pragma once

#include <cuda_runtime.h>

#include <c10/core/Device.h>

namespace c10 {
namespace cuda {
inline c10::DeviceIndex device_count() { return 1; }
inline c10::DeviceIndex current_device() { return 0; }
inline void set_device(c10::DeviceIndex) {}
inline void device_synchronize() { (void)cudaDeviceSynchronize(); }
}  // namespace cuda
}  // namespace c10
