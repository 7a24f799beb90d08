// Launches the kernels of `csrc/*.cu`.
#pragma once
#include <ATen/ATen.h>
#include <cstdint>
#include <functional>

// Returns 0, or 1 with a message in warpwright_error() (`shim.cpp`).
int warpwright_guarded(const std::function<void()> &work);

namespace warpwright {

enum class Kernel { add_norm, add_norm_back, turn, turn_back, gate, gate_back, likelihood, likelihood_back, choose,
                    attend };

// Runs on torch's stream of the GPU of `on`, where a CUDA graph may be recording; `arguments` are
// addresses of the kernel's arguments. On host tensors, the library given for tests runs.
void launch(Kernel kernel, const at::Tensor &on, int64_t blocks, unsigned threads, unsigned shared_bytes,
            void **arguments);

template <typename... Given>
void start(Kernel kernel, const at::Tensor &on, int64_t blocks, unsigned threads, unsigned shared_bytes,
           Given... given) {
  void *arguments[] = {&given...};
  if (blocks > 0)
    launch(kernel, on, blocks, threads, shared_bytes, arguments);
}

// The address of a kernel's tensor argument. Kernels read four numbers at a time, and 16 bytes at
// most.
template <typename T> T *lies(const at::Tensor &tensor, at::ScalarType type, at::IntArrayRef sizes) {
  TORCH_CHECK(tensor.scalar_type() == type && tensor.is_contiguous() && tensor.sizes() == sizes, "a kernel takes ",
              type, " of ", sizes, " and was given ", tensor.scalar_type(), " of ", tensor.sizes());
  constexpr size_t at_once = 4 * sizeof(T) <= 16 ? 4 * sizeof(T) : sizeof(T);
  TORCH_CHECK(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % at_once == 0, "a kernel takes ", type,
              " that lie on a multiple of ", at_once, " bytes");
  return static_cast<T *>(tensor.data_ptr());
}

inline int whole(int64_t number) {
  TORCH_CHECK(number >= 0 && number <= INT32_MAX, number, " is too large for a kernel");
  return static_cast<int>(number);
}

} // namespace warpwright
