// Arithmetic that says how it rounds. It is never contracted into a fused multiply-add, and the
// directed forms set the host's rounding mode around one operation.
#pragma once
#include <fenv.h>

#include "hostcuda/convert.h"
#include "hostcuda/math.h"

namespace hostcuda {
// Zero, which the compiler cannot know.
__attribute__((visibility("hidden"), used)) inline unsigned long long unknown_zero = 0;
// x, rounded, and no part of what uses it. (Not by ^, of which two cancel.) Neither __builtin_assoc_barrier nor parentheses keep g++
// from fusing; an empty asm does, but would not vectorise.
HOSTCUDA_INLINE float apart(float x) { return __uint_as_float(__float_as_uint(x) | (unsigned)unknown_zero); }
HOSTCUDA_INLINE double apart(double x) {
  return __longlong_as_double((long long)((unsigned long long)__double_as_longlong(x) | unknown_zero));
}
}  // namespace hostcuda

namespace hostcuda {
// Volatile operands and results stay between the calls that set the mode.
template <int kMode, class T, class F>
__attribute__((noinline)) inline T directed(F operation) {
  const int before = fegetround();
  fesetround(kMode);
  volatile T result = operation();
  fesetround(before);
  return result;
}
}  // namespace hostcuda

#define HOSTCUDA_DIRECTED1(name, R, T, expression)                                            \
  HOSTCUDA_DIRECTED1_AS(name##_rz, FE_TOWARDZERO, R, T, expression)                           \
  HOSTCUDA_DIRECTED1_AS(name##_ru, FE_UPWARD, R, T, expression)                               \
  HOSTCUDA_DIRECTED1_AS(name##_rd, FE_DOWNWARD, R, T, expression)
#define HOSTCUDA_DIRECTED1_AS(name, mode, R, T, expression)                                   \
  static inline R name(T a) {                                                                 \
    volatile T va = a;                                                                        \
    return ::hostcuda::directed<mode, R>([&] { T x = va; return (R)(expression); });          \
  }
#define HOSTCUDA_DIRECTED2(name, T, expression)                                               \
  HOSTCUDA_DIRECTED2_AS(name##_rz, FE_TOWARDZERO, T, expression)                              \
  HOSTCUDA_DIRECTED2_AS(name##_ru, FE_UPWARD, T, expression)                                  \
  HOSTCUDA_DIRECTED2_AS(name##_rd, FE_DOWNWARD, T, expression)
#define HOSTCUDA_DIRECTED2_AS(name, mode, T, expression)                                      \
  static inline T name(T a, T b) {                                                            \
    volatile T va = a, vb = b;                                                                \
    return ::hostcuda::directed<mode, T>([&] { T x = va, y = vb; return expression; });       \
  }
#define HOSTCUDA_DIRECTED3(name, T, expression)                                               \
  HOSTCUDA_DIRECTED3_AS(name##_rz, FE_TOWARDZERO, T, expression)                              \
  HOSTCUDA_DIRECTED3_AS(name##_ru, FE_UPWARD, T, expression)                                  \
  HOSTCUDA_DIRECTED3_AS(name##_rd, FE_DOWNWARD, T, expression)
#define HOSTCUDA_DIRECTED3_AS(name, mode, T, expression)                                      \
  static inline T name(T a, T b, T c) {                                                       \
    volatile T va = a, vb = b, vc = c;                                                        \
    return ::hostcuda::directed<mode, T>([&] { T x = va, y = vb, z = vc; return expression; }); \
  }
#define HOSTCUDA_ROUNDINGS(T, p, f)                                                            \
  HOSTCUDA_INLINE T __##p##add_rn(T a, T b) { return ::hostcuda::apart(a) + ::hostcuda::apart(b); } \
  HOSTCUDA_INLINE T __##p##sub_rn(T a, T b) { return ::hostcuda::apart(a) - ::hostcuda::apart(b); } \
  HOSTCUDA_INLINE T __##p##mul_rn(T a, T b) { return ::hostcuda::apart(a * b); }                \
  HOSTCUDA_INLINE T __##p##div_rn(T a, T b) { return a / b; }                                  \
  HOSTCUDA_INLINE T __##p##rcp_rn(T a) { return 1 / a; }                                       \
  HOSTCUDA_INLINE T __##p##sqrt_rn(T a) { return __builtin_sqrt##f(a); }                       \
  HOSTCUDA_DIRECTED2(__##p##add, T, x + y)                                                     \
  HOSTCUDA_DIRECTED2(__##p##sub, T, x - y)                                                     \
  HOSTCUDA_DIRECTED2(__##p##mul, T, x * y)                                                     \
  HOSTCUDA_DIRECTED2(__##p##div, T, x / y)                                                     \
  HOSTCUDA_DIRECTED1(__##p##rcp, T, T, 1 / x)                                                  \
  HOSTCUDA_DIRECTED1(__##p##sqrt, T, T, __builtin_sqrt##f(x))
HOSTCUDA_ROUNDINGS(float, f, f)
HOSTCUDA_ROUNDINGS(double, d, )
HOSTCUDA_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HOSTCUDA_INLINE double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
HOSTCUDA_DIRECTED3(__fmaf, float, __builtin_fmaf(x, y, z))
HOSTCUDA_DIRECTED3(__fma, double, __builtin_fma(x, y, z))
HOSTCUDA_INLINE float __frsqrt_rn(float x) { return (float)(1. / __builtin_sqrt((double)x)); }

// From a number with a fraction to an integer: _rn, _rz, _rd, _ru, saturated.
#define HOSTCUDA_TO_INTEGER(name, F, I, f)                                                     \
  HOSTCUDA_INLINE I name##_rn(F x) { return ::hostcuda::to<I>(__builtin_rint##f(x)); }         \
  HOSTCUDA_INLINE I name##_rz(F x) { return ::hostcuda::to<I>(x); }                            \
  HOSTCUDA_INLINE I name##_rd(F x) { return ::hostcuda::to<I>(__builtin_floor##f(x)); }        \
  HOSTCUDA_INLINE I name##_ru(F x) { return ::hostcuda::to<I>(__builtin_ceil##f(x)); }
HOSTCUDA_TO_INTEGER(__float2int, float, int, f)
HOSTCUDA_TO_INTEGER(__float2uint, float, unsigned, f)
HOSTCUDA_TO_INTEGER(__float2ll, float, long long, f)
HOSTCUDA_TO_INTEGER(__float2ull, float, unsigned long long, f)
HOSTCUDA_TO_INTEGER(__double2int, double, int, )
HOSTCUDA_TO_INTEGER(__double2uint, double, unsigned, )
HOSTCUDA_TO_INTEGER(__double2ll, double, long long, )
HOSTCUDA_TO_INTEGER(__double2ull, double, unsigned long long, )

// To a narrower number with a fraction.
#define HOSTCUDA_FROM(name, T, F)                                                              \
  HOSTCUDA_INLINE F name##_rn(T x) { return (F)x; }                                            \
  HOSTCUDA_DIRECTED1(name, F, T, x)
HOSTCUDA_FROM(__double2float, double, float)
HOSTCUDA_FROM(__int2float, int, float)
HOSTCUDA_FROM(__uint2float, unsigned, float)
HOSTCUDA_FROM(__ll2float, long long, float)
HOSTCUDA_FROM(__ull2float, unsigned long long, float)
HOSTCUDA_FROM(__ll2double, long long, double)
HOSTCUDA_FROM(__ull2double, unsigned long long, double)
HOSTCUDA_INLINE double __int2double_rn(int x) { return x; }
HOSTCUDA_INLINE double __uint2double_rn(unsigned x) { return x; }
