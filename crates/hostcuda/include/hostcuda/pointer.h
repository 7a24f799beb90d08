// Pointers to kernels whose types the source has written. A kernel's own type has a hidden parameter.
#pragma once
#include <atomic>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "hostcuda/launch.h"

namespace hostcuda {
template <class Function>
class KernelPointer;

// Holds a kernel or a function of the host: the source does not say which.
template <class... Args>
class KernelPointer<void(Args...)> {
  using Kernel = void (*)(const Index&, Args...);
  using Plain = void (*)(Args...);
  Kernel kernel_ = nullptr;
  Plain plain_ = nullptr;

 public:
  constexpr KernelPointer() = default;
  constexpr KernelPointer(std::nullptr_t) {}
  constexpr KernelPointer(int) {}   // 0
  constexpr KernelPointer(long) {}  // NULL
  constexpr KernelPointer(Kernel kernel) : kernel_(kernel) {}
  constexpr KernelPointer(Plain plain) : plain_(plain) {}
  // A lambda without captures.
  template <class F, std::enable_if_t<std::is_class<F>::value && std::is_convertible<F, Plain>::value &&
                                          !std::is_same<F, KernelPointer>::value,
                                      int> = 0>
  constexpr KernelPointer(F f) : plain_(f) {}
  void operator()(const Index& i, Args... args) const {
    if (kernel_)
      kernel_(i, args...);
    else
      plain_(args...);
  }
  void operator()(Args... args) const { plain_(args...); }
  constexpr const KernelPointer& operator*() const { return *this; }
  constexpr explicit operator bool() const { return kernel_ || plain_; }
  explicit operator void*() const { return kernel_ ? (void*)kernel_ : (void*)plain_; }
  explicit operator const void*() const { return (void*)*this; }
  explicit operator Kernel() const { return kernel_; }
  explicit operator Plain() const { return plain_; }
  Kernel kernel() const { return kernel_; }
  friend constexpr bool operator==(const KernelPointer& a, const KernelPointer& b) {
    return a.kernel_ == b.kernel_ && a.plain_ == b.plain_;
  }
  friend constexpr bool operator!=(const KernelPointer& a, const KernelPointer& b) { return !(a == b); }
};

// cudaLaunchKernel: the arguments come as an array of addresses. The kernel's own type says what
// they point to; whether it waits is not known here, and waiting is always right.
template <class... P, size_t... I>
inline void launch_unpacked(void (*kernel)(const Index&, P...), const Config& c, void** a, std::index_sequence<I...>) {
  launch<true, true, 0>(pointer(kernel), c, (*(std::remove_reference_t<P>*)a[I])...);
}
template <class... P>
inline Pointer<P...> pointer(KernelPointer<void(P...)> kernel) {
  return {kernel.kernel()};
}
// What this launch came to; an error of an earlier one stays for cudaGetLastError.
template <class Launch>
inline cudaError_t result_of(Launch launch) {
  const cudaError_t before = std::exchange(last_error, cudaSuccess);
  launch();
  const cudaError_t now = last_error;
  if (now == cudaSuccess) last_error = before;
  return now;
}
template <class... P>
inline cudaError_t launch_packed(void (*kernel)(const Index&, P...), dim3 grid, dim3 block, void** arguments,
                                 size_t shared = 0, cudaStream_t stream = nullptr) {
  return result_of([&] {
    launch_unpacked(kernel, Config(grid, block, shared, stream), arguments, std::index_sequence_for<P...>());
  });
}
template <class... P>
inline cudaError_t launch_packed(KernelPointer<void(P...)> kernel, dim3 grid, dim3 block, void** arguments,
                                 size_t shared = 0, cudaStream_t stream = nullptr) {
  return launch_packed(kernel.kernel(), grid, block, arguments, shared, stream);
}

// Kernels that became addresses without a type, and how each takes its arguments.
struct Erased {
  const void* kernel;
  void (*run)(const void* kernel, const Config& c, void** arguments);
  Erased* next;
};
__attribute__((visibility("hidden"))) inline std::atomic<Erased*> erased_kernels{nullptr};

template <class... P>
inline void run_erased(const void* kernel, const Config& c, void** arguments) {
  launch_unpacked((void (*)(const Index&, P...))kernel, c, arguments, std::index_sequence_for<P...>());
}
inline const Erased* find_erased(const void* kernel) {
  const Erased* e = erased_kernels.load();
  while (e && e->kernel != kernel) e = e->next;
  return e;
}
template <class... P>
inline void* erased(void (*kernel)(const Index&, P...)) {
  if (!find_erased((const void*)kernel)) {
    Erased* mine = new Erased{(const void*)kernel, run_erased<P...>, erased_kernels.load()};
    while (!erased_kernels.compare_exchange_weak(mine->next, mine)) {
    }
  }
  return (void*)kernel;
}
template <class... P>
inline void* erased(KernelPointer<void(P...)> kernel) {
  return kernel.kernel() ? erased(kernel.kernel()) : (void*)kernel;
}
// A variable that has a kernel's name.
template <class T>
inline void* erased(T* other) {
  return (void*)other;
}
inline cudaError_t launch_packed(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                                 cudaStream_t stream = nullptr) {
  const Erased* e = find_erased(kernel);
  if (!e) return last_error = cudaErrorInvalidDeviceFunction;
  return result_of([&] { e->run(kernel, Config(grid, block, shared, stream), arguments); });
}
}  // namespace hostcuda
