// Complex numbers as CUDA's own header has them: two floats, or two doubles.
#pragma once
#include <cmath>

#include "cuda_runtime.h"

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

// `S` ends the names of functions on floats.
#define HOSTCUDA_COMPLEX(C, R, S)                                                             \
  static inline constexpr R cuCreal##S(C x) { return x.x; }                                   \
  static inline constexpr R cuCimag##S(C x) { return x.y; }                                   \
  static inline constexpr C cuConj##S(C x) { return {x.x, -x.y}; }                            \
  static inline constexpr C cuCadd##S(C x, C y) { return {x.x + y.x, x.y + y.y}; }            \
  static inline constexpr C cuCsub##S(C x, C y) { return {x.x - y.x, x.y - y.y}; }            \
  static inline constexpr C cuCmul##S(C x, C y) {                                             \
    return {x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x};                                    \
  }                                                                                           \
  /* Both are divided by the size of `y`, so that its square does not overflow. */            \
  static inline C cuCdiv##S(C x, C y) {                                                       \
    const R size = std::fabs(y.x) + std::fabs(y.y), one = R(1) / size;                        \
    const C a = {x.x * one, x.y * one}, b = {y.x * one, y.y * one};                           \
    const R norm = R(1) / (b.x * b.x + b.y * b.y);                                            \
    return {(a.x * b.x + a.y * b.y) * norm, (a.y * b.x - a.x * b.y) * norm};                  \
  }                                                                                           \
  static inline R cuCabs##S(C x) { return std::hypot(x.x, x.y); }                             \
  static inline constexpr C cuCfma##S(C x, C y, C d) { return cuCadd##S(cuCmul##S(x, y), d); }
HOSTCUDA_COMPLEX(cuFloatComplex, float, f)
HOSTCUDA_COMPLEX(cuDoubleComplex, double, )
#undef HOSTCUDA_COMPLEX

static inline constexpr cuFloatComplex make_cuFloatComplex(float re, float im) { return {re, im}; }
static inline constexpr cuDoubleComplex make_cuDoubleComplex(double re, double im) { return {re, im}; }
static inline constexpr cuComplex make_cuComplex(float re, float im) { return {re, im}; }
static inline constexpr cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex x) { return {x.x, x.y}; }
static inline constexpr cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex x) { return {(float)x.x, (float)x.y}; }
