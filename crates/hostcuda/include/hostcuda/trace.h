// Times of launches, in builds that ask for them with HOSTCUDA_TRACE. Each library keeps its own and
// gives them out through hostcuda_trace().
#pragma once
#include <atomic>
#include <chrono>

namespace hostcuda {
struct TracedLaunch {
  const char* name;
  long long start_ns, duration_ns;
  unsigned grid[3], block[3];
  unsigned long long shared_bytes;
};
constexpr size_t kMaxTraced = 1 << 16;
struct TraceLog {
  std::atomic<size_t> count{0};
  TracedLaunch rows[kMaxTraced];
};
__attribute__((visibility("hidden"))) inline TraceLog trace_log;

inline long long trace_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Lives as long as a launch runs.
struct Traced {
  const Config& config;
  long long start = trace_clock();
  explicit Traced(const Config& c) : config(c) {}
  ~Traced() {
    const long long end = trace_clock();
    const size_t at = trace_log.count.fetch_add(1);
    if (at >= kMaxTraced) return;
    const dim3 &g = config.grid, &b = config.block;
    trace_log.rows[at] = {config.name, start, end - start, {g.x, g.y, g.z}, {b.x, b.y, b.z}, config.shared};
  }
};
}  // namespace hostcuda

extern "C" __attribute__((weak, used, visibility("default"))) const hostcuda::TracedLaunch* hostcuda_trace(size_t* count) {
  const size_t n = hostcuda::trace_log.count.load();
  *count = n < hostcuda::kMaxTraced ? n : hostcuda::kMaxTraced;
  return hostcuda::trace_log.rows;
}
