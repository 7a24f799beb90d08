// Cooperative groups: thread_block and tiles of a warp. Grid, cluster and coalesced groups are refused.
#pragma once
#include "cuda_runtime.h"

namespace cooperative_groups {
class thread_block {
 public:
  static void sync() { ::hostcuda::barrier(0, 0); }
  void barrier_arrive() const = delete;
  static unsigned thread_rank() { return ::hostcuda::tls_worker->current->linear; }
  static unsigned num_threads() {
    const ::hostcuda::Int3& d = ::hostcuda::tls_worker->index.block_dim;
    return (unsigned)(d.x * d.y * d.z);
  }
  static unsigned size() { return num_threads(); }
  static dim3 group_index() { return ::hostcuda::tls_worker->index.block; }
  static dim3 thread_index() { return ::hostcuda::tls_worker->current->thread; }
  static dim3 group_dim() { return ::hostcuda::tls_worker->index.block_dim; }
  static dim3 dim_threads() { return ::hostcuda::tls_worker->index.block_dim; }
};
inline thread_block this_thread_block() { return {}; }

template <unsigned Size, class Parent = thread_block>
class thread_block_tile {
  static_assert(Size && Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");
  static unsigned lane() { return ::hostcuda::tls_worker->current->lane; }
  static unsigned mask() { return Size == 32 ? ~0u : ((1u << (Size & 31)) - 1) << (lane() & ~(Size - 1)); }

 public:
  static unsigned thread_rank() { return lane() & (Size - 1); }
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned meta_group_rank() { return ::hostcuda::tls_worker->current->linear / Size; }
  static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
  static void sync() { __syncwarp(mask()); }
  template <class T>
  static T shfl(T v, int source) { return __shfl_sync(mask(), v, source, (int)Size); }
  template <class T>
  static T shfl_down(T v, unsigned delta) { return __shfl_down_sync(mask(), v, delta, (int)Size); }
  template <class T>
  static T shfl_up(T v, unsigned delta) { return __shfl_up_sync(mask(), v, delta, (int)Size); }
  template <class T>
  static T shfl_xor(T v, unsigned lanes) { return __shfl_xor_sync(mask(), v, (int)lanes, (int)Size); }
  static int any(int p) { return __any_sync(mask(), p); }
  static int all(int p) { return __all_sync(mask(), p); }
  static unsigned ballot(int p) { return __ballot_sync(mask(), p) >> (lane() & ~(Size - 1)); }
  static unsigned hostcuda_mask() { return mask(); }
};
template <unsigned Size, class Parent>
inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) { return {}; }
template <class Group>
inline void sync(const Group& g) { g.sync(); }
}  // namespace cooperative_groups
