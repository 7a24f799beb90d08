// Shared memory: one copy per worker, as a worker runs one block at a time.
#pragma once
#include "hostcuda/fiber.h"

namespace hostcuda {
// One number per declaration (S is a type of its own for each), unique in the library.
__attribute__((visibility("hidden"))) inline unsigned next_slot() {
  static unsigned count = 0;
  return __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
}
template <class S>
struct Slot {
  static unsigned id() {
    static const unsigned value = next_slot();
    return value;
  }
};
__attribute__((noinline, cold)) inline void* new_slot(Worker& w, unsigned id, size_t bytes) {
  if (id >= w.slots) {
    size_t more = (id + 16) & ~(size_t)15;
    w.slot = (void**)realloc(w.slot, more * sizeof(void*));
    if (!w.slot) fatal("out of memory for shared memory");
    memset(w.slot + w.slots, 0, (more - w.slots) * sizeof(void*));
    w.slots = more;
  }
  if (!(w.slot[id] = aligned_alloc(128, (bytes + 127) / 128 * 128))) fatal("out of memory for shared memory");
  return w.slot[id];
}
template <class S>
__attribute__((always_inline)) inline S* static_shared() {
  static_assert(sizeof(S) <= 48 * 1024, "more than 48 KiB of static shared memory: use extern __shared__");
  Worker& w = *tls_worker;
  unsigned id = Slot<S>::id();
  void* memory = __builtin_expect(id < w.slots && w.slot[id], 1) ? w.slot[id] : new_slot(w, id, sizeof(S));
  return (S*)__builtin_assume_aligned(memory, 128);
}
inline void* dynamic_shared() { return __builtin_assume_aligned(tls_worker->dynamic_shared, 128); }
}  // namespace hostcuda
