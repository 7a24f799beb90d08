// Functions of CUDA's mathematics that the C library lacks.
#pragma once
#include <math.h>

#include <cmath>

#include "hostcuda/math.h"

namespace hostcuda {
// sin and cos of pi x: x is reduced exactly, so that whole and half numbers give exact results.
inline double sin_of_pi(double x) {
  const double r = std::remainder(x, 2.);  // -1 <= r <= 1
  const double a = __builtin_fabs(r);
  const double s = a <= .25 ? ::sin(M_PI * a) : a < .75 ? ::cos(M_PI * (.5 - a)) : ::sin(M_PI * (1. - a));
  return __builtin_copysign(a == 1. ? 0. : s, a == 0. ? x : r);
}
inline double cos_of_pi(double x) {
  const double a = __builtin_fabs(std::remainder(x, 2.));
  return a <= .25 ? ::cos(M_PI * a) : a < .75 ? ::sin(M_PI * (.5 - a)) : -::cos(M_PI * (1. - a));
}
inline double inverse_erfc(double q) {
  if (q == 0.) return INFINITY;
  if (q == 2.) return -INFINITY;
  if (!(q > 0. && q < 2.)) return NAN;
  if (q > 1.) return -inverse_erfc(2. - q);
  const double t = ::sqrt(-2. * ::log(q / 2.));
  double x = -M_SQRT1_2 * ((2.30753 + t * 0.27061) / (1. + t * (0.99229 + t * 0.04481)) - t);
  for (int i = 0; i < 4; ++i) {
    const double f = ::erfc(x) - q, slope = M_2_SQRTPI * ::exp(-x * x);
    if (slope == 0.) break;
    x += f / (slope - x * f);
  }
  return x;
}
inline double inverse_erf(double p) {
  if (__builtin_fabs(p) > .5) return p > 0. ? inverse_erfc(1. - p) : -inverse_erfc(1. + p);
  double x = p * .886226925452758;
  for (int i = 0; i < 5; ++i) {
    const double f = ::erf(x) - p, slope = M_2_SQRTPI * ::exp(-x * x);
    x -= f / (slope + x * f);
  }
  return p == 0. ? p : x;
}
// exp(x^2) erfc(x).
inline double scaled_erfc(double x) {
  if (x < 5.) {
    const double h = x * x;
    return ::exp(h) * (1. + __builtin_fma(x, x, -h)) * ::erfc(x);
  }
  double c = x;
  if (x < 1e8)
    for (int k = 60; k > 0; --k) c = x + k * .5 / c;
  return M_2_SQRTPI / 2. / c;
}
// The root of a sum of squares, in steps that do not overflow.
template <class T>
inline double length(const T* v, int n) {
  double s = 0., large = 0.;
  bool infinite = false;
  for (int i = 0; i < n; ++i) {
    const double a = __builtin_fabs((double)v[i]);
    infinite |= a == INFINITY;
    large = a > large ? a : large;
  }
  if (infinite) return INFINITY;
  if (large == 0.) large = 1.;
  int e = 0;
  ::frexp(large, &e);
  for (int i = 0; i < n; ++i) {
    const double a = ::ldexp((double)v[i], -e);
    s += a * a;
  }
  return ::ldexp(__builtin_sqrt(s), e);
}
}  // namespace hostcuda

// The double form, and the single one computed with it.
#define HOSTCUDA_BOTH(name, expression)                                             \
  static inline double name(double x) { return expression; }                        \
  static inline float name##f(float v) { const double x = v; return (float)(expression); }
HOSTCUDA_BOTH(sinpi, hostcuda::sin_of_pi(x))
HOSTCUDA_BOTH(cospi, hostcuda::cos_of_pi(x))
HOSTCUDA_BOTH(erfinv, hostcuda::inverse_erf(x))
HOSTCUDA_BOTH(erfcinv, hostcuda::inverse_erfc(x))
HOSTCUDA_BOTH(erfcx, hostcuda::scaled_erfc(x))
HOSTCUDA_BOTH(normcdfinv, -M_SQRT2 * hostcuda::inverse_erfc(2. * x))
HOSTCUDA_BOTH(cyl_bessel_i0, std::cyl_bessel_i(0., __builtin_fabs(x)))
HOSTCUDA_BOTH(cyl_bessel_i1, __builtin_copysign(std::cyl_bessel_i(1., __builtin_fabs(x)), x))
static inline double rcbrt(double x) { return 1. / ::cbrt(x); }
static inline void sincospi(double x, double* s, double* c) { *s = sinpi(x); *c = cospi(x); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x); *c = cospif(x); }
#define HOSTCUDA_LENGTHS(T, f)                                                                     \
  static inline T norm##f(int n, const T* v) { return (T)hostcuda::length(v, n); }                 \
  static inline T rnorm##f(int n, const T* v) { return (T)(1. / hostcuda::length(v, n)); }         \
  static inline T norm3d##f(T a, T b, T c) { const T v[] = {a, b, c}; return norm##f(3, v); }      \
  static inline T rnorm3d##f(T a, T b, T c) { const T v[] = {a, b, c}; return rnorm##f(3, v); }    \
  static inline T norm4d##f(T a, T b, T c, T d) { const T v[] = {a, b, c, d}; return norm##f(4, v); } \
  static inline T rnorm4d##f(T a, T b, T c, T d) { const T v[] = {a, b, c, d}; return rnorm##f(4, v); } \
  static inline T rhypot##f(T a, T b) { const T v[] = {a, b}; return rnorm##f(2, v); }
HOSTCUDA_LENGTHS(float, f)
HOSTCUDA_LENGTHS(double, )
HOSTCUDA_INLINE int __double2hiint(double x) { return (int)((unsigned long long)__double_as_longlong(x) >> 32); }
HOSTCUDA_INLINE int __double2loint(double x) { return (int)__double_as_longlong(x); }
HOSTCUDA_INLINE double __hiloint2double(int hi, int lo) {
  return __longlong_as_double((long long)((unsigned long long)(unsigned)hi << 32 | (unsigned)lo));
}
