// Reductions over a tile, in the order of the lanes.
#pragma once
#include "cooperative_groups.h"

namespace cooperative_groups {
template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct greater {
  T operator()(T a, T b) const { return a > b ? a : b; }
};
template <class T>
struct less {
  T operator()(T a, T b) const { return a < b ? a : b; }
};
template <class T>
struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class Tile, class T, class Op>
inline T reduce(const Tile&, T value, const Op&) {
  return ::hostcuda::reduce_lanes<Op>(Tile::hostcuda_mask(), value);
}
}  // namespace cooperative_groups
