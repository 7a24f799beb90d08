// CUDA's runtime header for the host compiler: see hostcuda/ beside it.
#pragma once
#include <algorithm>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#define __HOSTCUDA__ 1
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
// __global__ and __constant__ are taken away by the rewriter; these mean nothing on the host.
#define __device__
#define __host__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
// Empty, because the C++ library's headers say __attribute__((__noinline__)) and may come after this one.
#define __noinline__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __builtin_assume(x) do { if (!(x)) __builtin_unreachable(); } while (0)

#include "hostcuda/api.h"
#include "hostcuda/atomics.h"
#include "hostcuda/fiber.h"
#include "hostcuda/launch.h"
#include "hostcuda/integer.h"
#include "hostcuda/math.h"
#include "hostcuda/pointer.h"
#include "hostcuda/rounded.h"
#include "hostcuda/shared.h"
#include "hostcuda/special.h"
#include "hostcuda/vector_types.h"
#include "hostcuda/warp.h"
#include "math_constants.h"


static inline long long clock64() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}
static inline void __trap() { abort(); }
static inline void __brkpt() {}
// All memory is of one kind here.
static inline unsigned __isGlobal(const void*) { return 1; }
static inline unsigned __isLocal(const void*) { return 0; }
static inline unsigned __isConstant(const void*) { return 0; }
