// Launches: blocks over OpenMP threads, a block's threads as one loop, or as fibers if they wait.
#pragma once
#include <omp.h>

#include <type_traits>
#include <utility>

#include "hostcuda/fiber.h"
#include "hostcuda/record.h"

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidSymbol = 13,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorNotSupported = 801,
  cudaErrorUnknown = 999,
};
typedef cudaError_t cudaError;

namespace hostcuda {
__attribute__((visibility("hidden"))) inline thread_local cudaError_t last_error = cudaSuccess;

struct Config {
  const char* name = "";  // the kernel as the source spells it
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  Config(dim3 g, dim3 b, size_t bytes = 0, cudaStream_t s = nullptr) : grid(g), block(b), shared(bytes), stream(s) {}
  Config(const char* n, dim3 g, dim3 b, size_t bytes = 0, cudaStream_t s = nullptr)
      : name(n), grid(g), block(b), shared(bytes), stream(s) {}
};

}  // namespace hostcuda

// Whether launches run anything. Gives way to a definition that says no: see the builder's ablation.
extern "C" __attribute__((weak, visibility("hidden"), noinline)) int hostcuda_launches() { return 1; }

#ifdef HOSTCUDA_TRACE
#include "hostcuda/trace.h"
#endif

namespace hostcuda {
inline cudaError_t check(const Config& c) {
  size_t threads = (size_t)c.block.x * c.block.y * c.block.z;
  size_t blocks = (size_t)c.grid.x * c.grid.y * c.grid.z;
  if (threads == 0 || threads > kMaxThreads || c.block.z > 64 || blocks == 0) return cudaErrorInvalidConfiguration;
  if (c.grid.x > 0x7fffffffu || c.grid.y > 65535 || c.grid.z > 65535) return cudaErrorInvalidConfiguration;
  if (c.shared > kMaxSharedBytes) return cudaErrorInvalidValue;
  return cudaSuccess;
}

inline void prepare(Worker& w, const Config& c) {
  w.index.block_dim = int3_of(c.block);
  w.index.grid_dim = int3_of(c.grid);
  w.guard = omp_get_max_threads() <= 16;
  if (c.shared > w.dynamic_capacity || !w.dynamic_shared) {
    free(w.dynamic_shared);
    size_t bytes = (c.shared + 128) / 128 * 128;
    w.dynamic_shared = (char*)aligned_alloc(128, bytes);
    if (!w.dynamic_shared) fatal("out of memory for shared memory");
    w.dynamic_capacity = bytes;
  }
}

inline Int3 block_at(const dim3& g, size_t i) {
  if (g.y == 1 && g.z == 1) return {(int)i, 0, 0};
  return {(int)(i % g.x), (int)(i / g.x % g.y), (int)(i / ((size_t)g.x * g.y))};
}

// The threads of one row of a block, which may run in any order: one loop, vectorised if possible.
template <Mode kMode, class Body>
__attribute__((always_inline)) inline void run_row(const Index& i, int turn, const Body& body) {
  const int n = i.block_dim.x;
#pragma GCC ivdep
  for (int x = 0; x < n; ++x) {
    Index j = i;
    j.thread.x = x;
    j.mode = kMode;
    j.turn = turn;
    body(j);
  }
}

// Whether the bounds check of a row holds for all of its threads, and for any.
template <bool kEnds, class Body>
__attribute__((always_inline)) inline Answer ask_row(const Index& i, int turn, const Body& body) {
  const int n = i.block_dim.x;
  Answer answer;
  Index j = i;
  j.mode = kAsk;
  j.turn = turn;
  j.answers = &answer;
  if (kEnds) {
    body(j);
    j.thread.x = n - 1;
    body(j);
    return answer;
  }
  for (int x = 0; x < n; ++x) {
    j.thread.x = x;
    body(j);
  }
  return answer;
}

// Whether there is no kernel; entry.h knows of pointers.
template <class Kernel>
inline bool missing(const Kernel&) { return false; }
// Writes a launch down instead of running it; see entry.h.
template <bool kWaits, bool kDevice, unsigned kShape, class Kernel, class... Args>
cudaError_t record(Kernel kernel, const Config& c, Args... args);

// kWaits: some thread of the kernel may wait for another. kDevice: some function that it calls looks
// up its indices in the worker. kShape: 1 the kernel has a bounds check that can be asked, 2 for a
// grid-stride loop, 4 if its first and last thread speak for a row. kernel(index, arguments...) runs
// one thread.
template <bool kWaits, bool kDevice, unsigned kShape, class Kernel, class... Args>
__attribute__((noinline)) void launch(Kernel kernel, const Config& c, Args... args) {
  if (cudaError_t error = missing(kernel) ? cudaErrorInvalidDeviceFunction : check(c)) {
    last_error = error;
    return;
  }
  if (recording()) {
    if (cudaError_t error = record<kWaits, kDevice, kShape>(kernel, c, args...)) last_error = error;
    return;
  }
  if (!hostcuda_launches()) return;
#ifdef HOSTCUDA_TRACE
  const Traced traced(c);
#endif
  auto body = [=](const Index& i) __attribute__((always_inline)) { kernel(i, args...); };
  using Body = decltype(body);
  const unsigned threads = c.block.x * c.block.y * c.block.z;
  const size_t blocks = (size_t)c.grid.x * c.grid.y * c.grid.z;
  // Waking a team costs microseconds: a handful of threads is not worth it.
  const bool team = blocks > 1 && (kWaits || blocks * threads > 2048);
#pragma omp parallel if (team)
  {
    Worker& w = worker();
    prepare(w, c);
#pragma omp for schedule(dynamic, (blocks > 4096 ? 64 : blocks > 256 ? 8 : 1)) nowait
    for (size_t b = 0; b < blocks; ++b) {
      if constexpr (kWaits) {
        w.index.block = block_at(c.grid, b);
        run_block(
            w, threads,
            [](const void* argument) {
              const Body& f = *(const Body*)argument;
              Worker& v = *tls_worker;
              while (next_thread(v)) {
                const Index i{v.current->thread, v.index.block, v.index.block_dim, v.index.grid_dim, kWhole, 0, nullptr};
                f(i);
                thread_done(v);
              }
            },
            &body);
      } else {
        Index i{Int3{0, 0, 0}, block_at(c.grid, b), int3_of(c.block), int3_of(c.grid), kWhole, 0, nullptr};
        if (kDevice) {
          w.index.block = i.block;
          w.current = &w.fiber[0];
        }
        for (int z = 0; z < i.block_dim.z; ++z)
          for (int y = 0; y < i.block_dim.y; ++y) {
            i.thread = Int3{0, y, z};
            if constexpr (kShape == 0) {
              run_row<kWhole>(
                  i, 0, [&](const Index& j) __attribute__((always_inline)) {
                    if (kDevice) w.current->thread = j.thread;
                    body(j);
                  });
            } else {
              for (int turn = 0;; ++turn) {
                const Answer answer = ask_row<(kShape & 4) != 0>(i, turn, body);
                if (answer.all)
                  run_row<kInside>(i, turn, body);
                else if (answer.any || kShape == 1 || kShape == 5)
                  run_row<(kShape & 2) ? kTurn : kWhole>(i, turn, body);
                if (!(kShape & 2) || !answer.any) break;
              }
            }
          }
      }
    }
  }
}
}  // namespace hostcuda

// In a kernel these names are locals declared by the rewriter; device functions look them up.
#define HOSTCUDA_INDICES(i) HOSTCUDA_NAMES((i).thread, (i).block, (i).block_dim, (i).grid_dim)
#define HOSTCUDA_NAMES(thread, block, block_dim, grid_dim)                                  \
  const ::hostcuda::Int3 hostcuda_threadIdx __attribute__((unused)) = thread,               \
                         hostcuda_blockIdx __attribute__((unused)) = block,                 \
                         hostcuda_blockDim __attribute__((unused)) = block_dim,             \
                         hostcuda_gridDim __attribute__((unused)) = grid_dim;               \
  const uint3 threadIdx __attribute__((unused)) = hostcuda_threadIdx,                       \
              blockIdx __attribute__((unused)) = hostcuda_blockIdx;                         \
  const dim3 blockDim __attribute__((unused)) = hostcuda_blockDim,                          \
             gridDim __attribute__((unused)) = hostcuda_gridDim;
#define HOSTCUDA_GUARD(...)                                              \
  if (hostcuda_index.mode == ::hostcuda::kAsk) {                         \
    hostcuda_index.answer((__VA_ARGS__));                                \
    return;                                                              \
  }
#define HOSTCUDA_ASK(...)                        \
  if (hostcuda_index.mode == ::hostcuda::kAsk) { \
    __VA_ARGS__;                                 \
    return;                                      \
  }
#define HOSTCUDA_DEVICE_INDICES                                                              \
  const ::hostcuda::Worker& hostcuda_worker = *::hostcuda::tls_worker;                       \
  HOSTCUDA_NAMES(hostcuda_worker.current->thread, hostcuda_worker.index.block,               \
                 hostcuda_worker.index.block_dim, hostcuda_worker.index.grid_dim)

namespace hostcuda {
// The indices outside a function's body, where no variables can be: in a constructor's initialisers.
struct Here {
  uint3 threadIdx, blockIdx;
  dim3 blockDim, gridDim;
};
inline Here here() {
  const Worker& w = *tls_worker;
  return {w.current->thread, w.index.block, w.index.block_dim, w.index.grid_dim};
}
}  // namespace hostcuda

#include "hostcuda/entry.h"
