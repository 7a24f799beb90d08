// Entries: what a recorded launch is called by in a process that has only the kernels. Included by
// launch.h.
#pragma once
#include <type_traits>
#include <utility>

#include "hostcuda/launch.h"

// Where this library's image begins. Offsets from here are the same wherever it is loaded.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[];

namespace hostcuda {
// A kernel that is known only when it is launched.
template <class... P>
struct Pointer {
  void (*kernel)(const Index&, P...);
  template <class... Args>
  void operator()(const Index& i, Args... args) const {
    kernel(i, args...);
  }
};
// Anything else that can be called like a kernel. It cannot be recorded.
template <class F>
struct Opaque {
  F kernel;
  template <class... Args>
  void operator()(const Index& i, Args... args) const {
    kernel(i, args...);
  }
};
template <class... P>
inline Pointer<P...> pointer(void (*kernel)(const Index&, P...)) {
  return {kernel};
}
template <class F>
inline Opaque<F> pointer(F kernel) {
  return {kernel};
}

template <class... P>
inline bool missing(const Pointer<P...>& p) { return !p.kernel; }

// A closure that calls a kernel of its file by name. What it may have captured is of the kernel's template
// arguments: a generic closure captures a constant that it never reads.
template <class Closure>
struct Named : Closure {};
template <class Closure>
__attribute__((always_inline)) inline Named<Closure> named(Closure closure) {
  return {closure};
}

template <class Kernel>
struct IsNamed : std::is_empty<Kernel> {};
template <class Closure>
struct IsNamed<Named<Closure>> : std::true_type {};
template <class Kernel>
struct IsPointer : std::false_type {};
template <class... P>
struct IsPointer<Pointer<P...>> : std::true_type {};

// `closure` calls the kernel by the name that the source has for it. If that is the name of a variable,
// the closure has a reference to it, and what the variable holds is launched by itself.
template <bool kWaits, bool kDevice, unsigned kShape, class Closure, class Kernel, class... Args>
inline void launch_either(Closure closure, Kernel kernel, const Config& c, Args... args) {
  if constexpr (std::is_empty<Closure>::value)
    launch<kWaits, kDevice, kShape>(closure, c, args...);
  else
    launch<kWaits, kDevice, kShape>(kernel, c, args...);
}

// The bytes of a value; a copy is made from them.
template <class T>
struct Bytes {
  alignas(T) unsigned char bytes[sizeof(T)];
  explicit Bytes(const void* from) { memcpy(bytes, from, sizeof(T)); }
  const T& value() const { return *reinterpret_cast<const T*>(bytes); }
};

template <size_t kCount>
struct Signature {
  Entry entry;
  uint32_t bytes[kCount ? kCount : 1];
};

template <bool kWaits, bool kDevice, unsigned kShape, class Kernel, class... Args>
struct Instance {
  static constexpr bool kPointer = IsPointer<Kernel>::value;
  static constexpr bool kRecordable =
      (kPointer || IsNamed<Kernel>::value) &&
      ((std::is_trivially_copy_constructible<Args>::value && std::is_trivially_destructible<Args>::value) && ...);

  static Kernel kernel(const void* const* arguments) {
    if constexpr (kPointer) {
      uintptr_t offset;
      memcpy(&offset, arguments[0], sizeof(offset));
      return Kernel{(decltype(Kernel::kernel))((uintptr_t)__ehdr_start + offset)};
    } else {
      const unsigned char unread[sizeof(Kernel)] = {};
      return Bytes<Kernel>(unread).value();
    }
  }
  template <size_t... I>
  static int run_with(const Geometry* g, const void* const* a, std::index_sequence<I...>) {
    const Config c(dim3(g->grid[0], g->grid[1], g->grid[2]), dim3(g->block[0], g->block[1], g->block[2]), g->shared);
    last_error = cudaSuccess;
    launch<kWaits, kDevice, kShape>(kernel(a), c, Bytes<Args>(a[I + kPointer]).value()...);
    return std::exchange(last_error, cudaSuccess);
  }
  static int run(const Geometry* g, const void* const* arguments) {
    return run_with(g, arguments, std::index_sequence_for<Args...>());
  }
};

// Apart from Instance, so that it is there only where something is recorded.
template <class I, class... State>
struct Table {
  static constexpr Signature<sizeof...(State)> value = {{kEntryMagic, &I::run, sizeof...(State)}, {sizeof(State)...}};
};

inline cudaError_t write_down(const Config& c, const Entry& entry, const Argument* arguments) {
  const LaunchCall call = {c.name,
                           &entry,
                           {{c.grid.x, c.grid.y, c.grid.z}, {c.block.x, c.block.y, c.block.z}, c.shared},
                           c.stream,
                           arguments,
                           entry.count};
  return (cudaError_t)recorder->launch(recorder->context, &call);
}
// What lies between the members of a structure is nobody's, and differs from run to run.
template <class T>
inline void clear_padding(T& value) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&value);
#endif
#endif
}

template <bool kWaits, bool kDevice, unsigned kShape, class Kernel, class... Args>
__attribute__((noinline, cold)) cudaError_t record(Kernel kernel, const Config& c, Args... args) {
  using Run = Instance<kWaits, kDevice, kShape, Kernel, Args...>;
  if constexpr (!Run::kRecordable) {
    return (cudaError_t)recorder->refuse(recorder->context, c.name);
  } else if constexpr (Run::kPointer) {
    const uintptr_t offset = (uintptr_t)kernel.kernel - (uintptr_t)__ehdr_start;
    (clear_padding(args), ...);
    const Argument list[] = {{&offset, sizeof(offset)}, {&args, sizeof(args)}...};
    return write_down(c, Table<Run, uintptr_t, Args...>::value.entry, list);
  } else {
    (clear_padding(args), ...);
    const Argument list[] = {{&args, sizeof(args)}..., {nullptr, 0}};
    return write_down(c, Table<Run, Args...>::value.entry, list);
  }
}
}  // namespace hostcuda
