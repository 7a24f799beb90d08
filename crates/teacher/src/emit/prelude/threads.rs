//! Combining the values of threads: of a part of a warp, a warp, a block, or a column.

use super::Helper;

pub(super) const HELPERS: &[Helper] = &[
    (
        "warp_reduce<",
        "// Every lane of the warp gets the combination of all lanes.
template <typename Op, typename T>
__device__ __forceinline__ T warp_reduce(T value) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) {
    const T other = __shfl_xor_sync(0xffffffffu, value, step);  // a bool travels as an int
    value = Op()(value, other);
  }
  return value;
}
",
    ),
    (
        "part_reduce<",
        "// Every one of kLanes neighbouring lanes gets the combination of them all.
template <int kLanes, typename Op, typename T>
__device__ __forceinline__ T part_reduce(T value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step >>= 1) {
    const T other = __shfl_xor_sync(0xffffffffu, value, step);
    value = Op()(value, other);
  }
  return value;
}
",
    ),
    (
        "part_arg<",
        "// The same for a value and its position.
template <int kLanes, typename Op, typename T>
__device__ __forceinline__ void part_arg(T& value, int& at) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step >>= 1) {
    const T other = __shfl_xor_sync(0xffffffffu, value, step);
    const int where = __shfl_xor_sync(0xffffffffu, at, step);
    Op()(value, at, other, where);
  }
}
",
    ),
    (
        "block_reduce<",
        "// Every thread of the block gets the combination of all threads.
template <int kThreads, typename Op, typename T>
__device__ __forceinline__ T block_reduce(T value) {
  __shared__ T partial[kThreads / 32];
  value = warp_reduce<Op>(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  T total = partial[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) total = Op()(total, partial[w]);
  __syncthreads();  // before the next reduction writes here
  return total;
}
",
    ),
    (
        "lane_below(value",
        "// The value that a lane further down has, and that of a given lane.
template <typename T>
__device__ __forceinline__ T lane_below(T value, int step) {
  return __shfl_up_sync(0xffffffffu, value, step);
}
template <typename T>
__device__ __forceinline__ T lane_value(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
",
    ),
    (
        "warp_before<",
        "// What the lanes before this one have together; the whole warp's goes to `total`.
template <typename Op, typename T>
__device__ __forceinline__ T warp_before(T value, T& total, T identity) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) {
    const T below = lane_below(value, step);
    const T both = Op()(below, value);
    if (lane >= step) value = both;
  }
  total = lane_value(value, 31);
  const T before = lane_below(value, 1);
  return lane == 0 ? identity : before;
}
",
    ),
    (
        "block_before<",
        "// The same for a block.
template <int kAlong, typename Op, typename T>
__device__ __forceinline__ T block_before(T value, T& total, T identity) {
  __shared__ T warps[kAlong / 32];
  const T lanes = warp_before<Op>(value, total, identity);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = total;
  __syncthreads();
  T sum = identity, before = identity;
#pragma unroll
  for (int w = 0; w < kAlong / 32; ++w) {
    if (w == threadIdx.x / 32) before = sum;
    sum = Op()(sum, warps[w]);
  }
  __syncthreads();  // before the next tile writes here
  total = sum;
  return Op()(before, lanes);
}
",
    ),
    (
        "column_before<",
        "// The same for threads with the same threadIdx.x.
template <int kAlong, int kRowsPerBlock, typename Op, typename T>
__device__ __forceinline__ T column_before(T value, T& total, T identity) {
  __shared__ T parts[kAlong][kRowsPerBlock];
  parts[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  T sum = identity, before = identity;
#pragma unroll
  for (int w = 0; w < kAlong; ++w) {
    if (w == threadIdx.y) before = sum;
    sum = Op()(sum, parts[w][threadIdx.x]);
  }
  __syncthreads();  // before the next tile writes here
  total = sum;
  return before;
}
",
    ),
    (
        "column_reduce<",
        "// Threads with the same threadIdx.x get the combination of them all.
template <int kThreads, int kAlong, typename Op, typename T>
__device__ __forceinline__ T column_reduce(T value) {
  __shared__ T partial[kAlong][kThreads];
  partial[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  T total = partial[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < kAlong; ++w) total = Op()(total, partial[w][threadIdx.x]);
  __syncthreads();  // before the next reduction writes here
  return total;
}
",
    ),
    (
        "column_arg<",
        "// The same for a value and its position.
template <int kThreads, int kAlong, typename Op, typename T>
__device__ __forceinline__ void column_arg(T& value, int& at) {
  __shared__ T values[kAlong][kThreads];
  __shared__ int places[kAlong][kThreads];
  values[threadIdx.y][threadIdx.x] = value;
  places[threadIdx.y][threadIdx.x] = at;
  __syncthreads();
  value = values[0][threadIdx.x];
  at = places[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < kAlong; ++w) Op()(value, at, values[w][threadIdx.x], places[w][threadIdx.x]);
  __syncthreads();  // before the next reduction writes here
}
",
    ),
    (
        "warp_arg<",
        "// The same for a value and its position.
template <typename Op, typename T>
__device__ __forceinline__ void warp_arg(T& value, int& at) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) {
    const T other = __shfl_xor_sync(0xffffffffu, value, step);
    const int where = __shfl_xor_sync(0xffffffffu, at, step);
    Op()(value, at, other, where);
  }
}
",
    ),
    (
        "block_arg<",
        "template <int kThreads, typename Op, typename T>
__device__ __forceinline__ void block_arg(T& value, int& at) {
  __shared__ T values[kThreads / 32];
  __shared__ int places[kThreads / 32];
  warp_arg<Op>(value, at);
  if (threadIdx.x % 32 == 0) {
    values[threadIdx.x / 32] = value;
    places[threadIdx.x / 32] = at;
  }
  __syncthreads();
  value = values[0];
  at = places[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) Op()(value, at, values[w], places[w]);
  __syncthreads();  // before the next reduction writes here
}
",
    ),
];
