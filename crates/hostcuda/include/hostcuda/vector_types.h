// CUDA's vector types, dim3, and the index triple that kernels see.
#pragma once
#include <cstddef>
#include <cstdint>

#define HOSTCUDA_VECTOR(T, N)                                                              \
  struct N##1 { T x; };                                                                    \
  struct alignas(2 * sizeof(T)) N##2 { T x, y; };                                          \
  struct N##3 { T x, y, z; };                                                              \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; };          \
  static inline constexpr N##1 make_##N##1(T x) { return {x}; }                            \
  static inline constexpr N##2 make_##N##2(T x, T y) { return {x, y}; }                    \
  static inline constexpr N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }            \
  static inline constexpr N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
HOSTCUDA_VECTOR(float, float)
HOSTCUDA_VECTOR(double, double)
HOSTCUDA_VECTOR(int, int)
HOSTCUDA_VECTOR(unsigned int, uint)
HOSTCUDA_VECTOR(short, short)
HOSTCUDA_VECTOR(unsigned short, ushort)
HOSTCUDA_VECTOR(signed char, char)
HOSTCUDA_VECTOR(unsigned char, uchar)
HOSTCUDA_VECTOR(long, long)
HOSTCUDA_VECTOR(unsigned long, ulong)
HOSTCUDA_VECTOR(long long, longlong)
HOSTCUDA_VECTOR(unsigned long long, ulonglong)
#undef HOSTCUDA_VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};

namespace hostcuda {
// threadIdx and friends, signed: the sum of signed indices cannot wrap, so that the host compiler may
// treat `x[blockIdx.x * blockDim.x + threadIdx.x]` as contiguous and vectorise. Kernels see unsigned
// ones, and these where it makes no difference.
struct Int3 {
  int x, y, z;
  constexpr operator uint3() const { return uint3{(unsigned)x, (unsigned)y, (unsigned)z}; }
  constexpr operator dim3() const { return dim3((unsigned)x, (unsigned)y, (unsigned)z); }
};
static inline constexpr Int3 int3_of(dim3 v) { return {(int)v.x, (int)v.y, (int)v.z}; }
// How a kernel is to be run; a constant wherever a kernel without barriers is called.
enum Mode { kWhole, kAsk, kInside, kTurn };
struct Answer {
  int all = 1, any = 0;
};
// All that a thread knows of its place.
struct Index {
  Int3 thread, block, block_dim, grid_dim;
  Mode mode;
  int turn;          // which iteration of a grid-stride loop
  Answer* answers;   // what the threads of a row said of their bounds check
  __attribute__((always_inline)) void answer(bool holds) const {
    answers->all &= (int)holds;
    answers->any |= (int)holds;
  }
  // Whether a thread takes the first turn of its loop.
  template <class F>
  __attribute__((always_inline)) bool enters(F first) const { return first(); }
  // The condition of a grid-stride loop of which only one iteration is run.
  __attribute__((always_inline)) bool again(bool first, bool condition) const {
    return mode == kWhole ? condition : first && (mode == kInside || condition);
  }
  // The bounds check holds for every thread of the row.
  __attribute__((always_inline)) constexpr bool inside() const { return mode == kInside; }
};
}  // namespace hostcuda
