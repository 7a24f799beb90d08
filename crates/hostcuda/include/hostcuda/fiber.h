// How the threads of one block wait for one another: fibers, one operating-system thread per block.
//
// A worker (one operating-system thread) runs one block at a time. Threads that never wait run one
// after another in one fiber. A thread that waits keeps its fiber, and the worker goes on in this order:
// the next thread of the same warp that has not started, a ready lane of the same warp, another warp.
//
// Invariants:
//   * a lane is in exactly one of: not started, running, ready, waiting in a collective, waiting at
//     the barrier, exited; `ready`, `collective` and `at_barrier` are disjoint masks of a warp;
//   * the last lane to arrive computes the results of all lanes before any of them goes on, so that
//     a lane reads only what was written for it, whatever the others do next;
//   * nothing is shared between workers; a block's shared memory belongs to its worker.
#pragma once
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hostcuda/switch.h"
#include "hostcuda/vector_types.h"

namespace hostcuda {
constexpr unsigned kMaxThreads = 1024, kWarp = 32;
constexpr size_t kStackBytes = 128u << 10;
constexpr size_t kMaxSharedBytes = 227u << 10;  // per block, as on sm_90

struct Warp;
struct Fiber {
  void* sp;
  Warp* warp;
  Int3 thread;
  unsigned lane, linear;
  Fiber* next_free;
};

using Complete = void (*)(Warp&, unsigned lanes);

struct Warp {
  unsigned live, ready, collective, at_barrier;  // lane masks
  unsigned started, size, base;                  // started and size count lanes
  unsigned asking;                               // lanes that wait for whoever comes
  bool mixed;                                    // lanes wait for different collectives
  Complete common;                               // what they wait for while not mixed
  Fiber* fiber[kWarp];
  Complete complete[kWarp];  // what a lane waits for
  unsigned mask[kWarp];
  unsigned source[kWarp];  // lane whose value is wanted, its own if none
  alignas(64) uint64_t in[kWarp];
  alignas(64) uint64_t out[kWarp];
};

struct Worker {
  Fiber* current;
  Index index;
  void* main_sp;
  unsigned warps, next_warp, live, waiting;  // waiting: at the barrier
  unsigned runnable;                         // warps that have a ready lane
  int barrier_or, barrier_and, barrier_count, barrier_result[3];
  void (*loop)(const void*);
  const void* argument;
  unsigned fibers;
  Fiber* free_fibers;
  char* stacks;
  char* dynamic_shared;
  size_t dynamic_capacity;
  void** slot;  // static __shared__ declarations by id
  size_t slots;
  bool guard;
  Warp warp[kMaxThreads / kWarp];
  Fiber fiber[kMaxThreads];
};

__attribute__((visibility("hidden"))) inline thread_local Worker* tls_worker
    __attribute__((tls_model("initial-exec"))) = nullptr;

// Frees a worker when its operating-system thread ends.
struct WorkerOwner {
  Worker* worker = nullptr;
  ~WorkerOwner() {
    if (!worker) return;
    for (size_t i = 0; i < worker->slots; ++i) free(worker->slot[i]);
    free(worker->slot);
    free(worker->dynamic_shared);
    munmap(worker->stacks, kStackBytes * kMaxThreads);
    munmap(worker, sizeof(Worker));
    tls_worker = nullptr;
  }
};

__attribute__((noinline, cold)) inline void fatal(const char* what) {
  fprintf(stderr, "hostcuda: %s\n", what);
  abort();
}

__attribute__((noinline, cold)) inline Worker* new_worker() {
  static thread_local WorkerOwner owner;
  void* memory = mmap(nullptr, sizeof(Worker), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* stacks = mmap(nullptr, kStackBytes * kMaxThreads, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || stacks == MAP_FAILED) fatal("out of memory for a block's stacks");
  Worker* w = (Worker*)memory;
  w->stacks = (char*)stacks;
  owner.worker = tls_worker = w;
  return w;
}
inline Worker& worker() {
  Worker* w = tls_worker;
  return *(__builtin_expect(w != nullptr, 1) ? w : new_worker());
}

inline void run_fiber(Worker& w, void** save, Fiber* f) {
  w.current = f;
  hostcuda_switch(save, f->sp);
}

void fiber_entry();

inline Fiber* new_fiber(Worker& w, Warp* p) {
  Fiber* f = w.free_fibers;
  size_t i;
  if (f) {
    w.free_fibers = f->next_free;
    i = (size_t)(f - w.fiber);
  } else {
    i = w.fibers++;
    f = &w.fiber[i];
    // A guard page turns a stack overflow into a crash of this process instead of a wrong result.
    // Each costs two kernel map entries, of which a process has about 65,000.
    if (w.guard) mprotect(w.stacks + i * kStackBytes, 4096, PROT_NONE);
  }
  f->warp = p;
  // Staggered, so that equal frames of different fibers do not fall into the same cache sets.
  f->sp = fresh_stack((uintptr_t)w.stacks + (i + 1) * kStackBytes - (i * 192) % 16384, &fiber_entry);
  return f;
}

// The running fiber takes the next thread of its warp, or of a warp that has not started if none of
// its warp waits. False when there is no thread left that this fiber could take.
inline bool next_thread(Worker& w) {
  Fiber* f = w.current;
  Warp* p = f->warp;
  if (p->started == p->size) {
    if (p->live || w.next_warp == w.warps) return false;
    p = f->warp = &w.warp[w.next_warp++];
  }
  unsigned lane = p->started++, linear = p->base + lane;
  unsigned bx = (unsigned)w.index.block_dim.x, by = (unsigned)w.index.block_dim.y;
  f->lane = lane;
  f->linear = linear;
  f->thread = by == 1 && (unsigned)w.index.block_dim.z == 1
                  ? Int3{(int)linear, 0, 0}
                  : Int3{(int)(linear % bx), (int)(linear / bx % by), (int)(linear / (bx * by))};
  p->fiber[lane] = f;
  return true;
}

inline Fiber* take_ready(Worker& w, Warp* p) {
  unsigned lane = (unsigned)__builtin_ctz(p->ready);
  p->ready &= p->ready - 1;
  if (!p->ready) w.runnable &= ~(1u << (p - w.warp));
  return p->fiber[lane];
}

inline void make_ready(Worker& w, Warp* p, unsigned lanes) {
  p->ready |= lanes;
  if (lanes) w.runnable |= 1u << (p - w.warp);
}

// The lanes that wait for the same thing as `complete`.
inline unsigned waiting_for(const Warp& p, Complete complete) {
  if (__builtin_expect(!p.mixed, 1)) return p.common == complete ? p.collective : 0;
  unsigned lanes = 0;
  for (unsigned left = p.collective; left; left &= left - 1) {
    unsigned l = (unsigned)__builtin_ctz(left);
    if (p.complete[l] == complete) lanes |= 1u << l;
  }
  return lanes;
}

inline void serve(Worker& w, Warp& p, Complete complete, unsigned lanes, unsigned resume) {
  complete(p, lanes);
  p.collective &= ~lanes;
  if (!p.collective) p.mixed = false;
  make_ready(w, &p, resume);
}

// Lanes named in a mask that can no longer come, because they wait elsewhere: on a GPU a full mask
// in a partly entered branch is undefined, but common and harmless in practice. The lanes that did
// come are served. Lanes that only ask who is with them come first: the others may be waiting for
// them.
__attribute__((noinline, cold)) inline bool serve_partial(Worker& w) {
  for (unsigned i = 0; i < w.warps; ++i) {
    Warp& p = w.warp[i];
    const unsigned asking = p.collective & p.asking;
    if (!asking) continue;
    const Complete complete = p.complete[__builtin_ctz(asking)];
    const unsigned lanes = waiting_for(p, complete) & asking;
    p.asking &= ~lanes;
    serve(w, p, complete, lanes, lanes);
    return true;
  }
  for (unsigned i = 0; i < w.warps; ++i) {
    Warp& p = w.warp[i];
    if (!p.collective) continue;
    unsigned first = (unsigned)__builtin_ctz(p.collective);
    serve(w, p, p.complete[first], waiting_for(p, p.complete[first]) & p.mask[first],
          waiting_for(p, p.complete[first]) & p.mask[first]);
    return true;
  }
  return false;
}

// Whom to run when the current thread of warp `p` cannot go on. Null when all threads have exited.
// `spare`, if given, is the running fiber whose work is done: it takes new threads itself.
inline Fiber* fresh_fiber(Worker& w, Warp* p, Fiber* spare) {
  if (!spare) return new_fiber(w, p);
  spare->warp = p;
  return spare;
}
inline Fiber* next_fiber(Worker& w, Warp* p, Fiber* spare) {
  for (;;) {
    if (p->started < p->size) return fresh_fiber(w, p, spare);
    if (p->ready) return take_ready(w, p);
    if (w.next_warp < w.warps) return fresh_fiber(w, &w.warp[w.next_warp++], spare);
    if (w.runnable) return take_ready(w, &w.warp[__builtin_ctz(w.runnable)]);
    if (!w.live) return nullptr;
    if (!serve_partial(w)) fatal("a block waits for itself: a barrier that not all of its threads reach");
  }
}

inline void suspend(Worker& w) {
  Fiber* f = w.current;
  Fiber* g = next_fiber(w, f->warp, nullptr);
  if (g != f)
    run_fiber(w, &f->sp, g);
  else
    w.current = f;
}

inline void release_barrier(Worker& w) {
  w.barrier_result[0] = w.barrier_or;
  w.barrier_result[1] = w.barrier_and;
  w.barrier_result[2] = w.barrier_count;
  w.barrier_or = w.barrier_count = 0;
  w.barrier_and = 1;
  w.waiting = 0;
  for (unsigned i = 0; i < w.warps; ++i) {
    Warp& p = w.warp[i];
    unsigned lanes = p.at_barrier;
    p.at_barrier = 0;
    make_ready(w, &p, lanes);
  }
}

// __syncthreads and its voting forms; which: 0 or, 1 and, 2 count.
inline int barrier(int predicate, int which) {
  Worker& w = *tls_worker;
  if (__builtin_expect(!w.loop, 0)) fatal("a kernel without barriers waits: please report it");
  w.barrier_or |= !!predicate;
  w.barrier_and &= !!predicate;
  w.barrier_count += !!predicate;
  if (++w.waiting == w.live) {
    release_barrier(w);
  } else {
    w.current->warp->at_barrier |= 1u << w.current->lane;
    suspend(w);
  }
  // Nobody can complete the next barrier before this thread has left this one.
  return w.barrier_result[which];
}

// Waits until all live lanes of `mask` have arrived; the last one runs `complete` for all of them.
// With `asking` those that never come are not waited for.
inline void collective(Worker& w, unsigned mask, Complete complete, bool asking = false) {
  if (__builtin_expect(!w.loop, 0)) fatal("a kernel without barriers waits: please report it");
  Fiber* f = w.current;
  Warp& p = *f->warp;
  unsigned me = 1u << f->lane;
  if (!p.collective)
    p.common = complete;
  else if (p.common != complete)
    p.mixed = true;
  unsigned need = (p.live & mask) | me;
  if (((waiting_for(p, complete) | me) & need) == need) {
    p.asking &= ~need;
    serve(w, p, complete, need, need & ~me);
    return;
  }
  p.collective |= me;
  p.complete[f->lane] = complete;
  p.mask[f->lane] = mask | me;
  if (asking) p.asking |= me;
  suspend(w);
}

// A thread has returned from the kernel: nobody waits for it any more.
inline void thread_done(Worker& w) {
  Fiber* f = w.current;
  Warp& p = *f->warp;
  p.live &= ~(1u << f->lane);
  if (--w.live && w.waiting == w.live) release_barrier(w);
  for (unsigned left = p.collective; left;) {
    unsigned lane = (unsigned)__builtin_ctz(left), need = p.live & p.mask[lane];
    left &= left - 1;
    if ((waiting_for(p, p.complete[lane]) & need) != need) continue;
    left &= ~need;
    p.asking &= ~need;
    serve(w, p, p.complete[lane], need, need);
  }
}

inline void fiber_entry() {
  Worker& w = *tls_worker;
  Fiber *f, *g;
  do {
    w.loop(w.argument);
    f = w.current;
    g = next_fiber(w, f->warp, f);
  } while (g == f);
  f->next_free = w.free_fibers;  // its stack is still in use, but nobody takes it before the switch
  w.free_fibers = f;
  void* dead;
  if (g)
    run_fiber(w, &dead, g);
  else
    hostcuda_switch(&dead, w.main_sp);
  __builtin_unreachable();
}

// Runs the threads of one block; w.index.block and the dimensions are set, `loop` takes threads by
// next_thread until there is none.
inline void run_block(Worker& w, unsigned threads, void (*loop)(const void*), const void* argument) {
  w.live = threads;
  w.waiting = w.runnable = 0;
  w.barrier_or = w.barrier_count = 0;
  w.barrier_and = 1;
  w.warps = (threads + kWarp - 1) / kWarp;
  w.next_warp = 1;
  for (unsigned i = 0; i < w.warps; ++i) {
    Warp& p = w.warp[i];
    p.base = i * kWarp;
    p.size = threads - p.base < kWarp ? threads - p.base : kWarp;
    p.live = p.size == kWarp ? ~0u : (1u << p.size) - 1;
    p.ready = p.collective = p.at_barrier = p.started = p.asking = 0;
    p.mixed = false;
  }
  w.loop = loop;
  w.argument = argument;
  run_fiber(w, &w.main_sp, new_fiber(w, &w.warp[0]));
  w.loop = nullptr;
}
}  // namespace hostcuda
