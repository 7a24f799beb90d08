// Binary16 and bfloat16: storage in 16 bits, arithmetic in float, rounded after every operation.
// Conversions are integer arithmetic without branches, so that loops over them vectorise everywhere.
#pragma once
#include <cstdint>

#include "hostcuda/math.h"
#include "hostcuda/vector_types.h"

namespace hostcuda {
HOSTCUDA_INLINE float float_of_half(uint16_t h) {
  unsigned magnitude = (unsigned)(h & 0x7fff) << 13, sign = (unsigned)(h & 0x8000) << 16;
  unsigned finite = __float_as_uint(__uint_as_float(magnitude) * 5.192296858534828e33f);  // 2^112
  unsigned special = magnitude | 0x7f800000u;
  return __uint_as_float(((h & 0x7c00) == 0x7c00 ? special : finite) | sign);
}
// To nearest, ties to even.
HOSTCUDA_INLINE uint16_t half_of_float(float f) {
  unsigned bits = __float_as_uint(f), u = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  unsigned normal = (u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13;
  unsigned tiny = __float_as_uint(__uint_as_float(u) + 0.5f) - 0x3f000000u;
  unsigned r = u < 0x38800000u ? tiny : normal;
  r = u >= 0x477ff000u ? 0x7c00u : r;
  r = u > 0x7f800000u ? 0x7fffu : r;
  return (uint16_t)(r | sign);
}
HOSTCUDA_INLINE float float_of_bf16(uint16_t h) { return __uint_as_float((unsigned)h << 16); }
HOSTCUDA_INLINE uint16_t bf16_of_float(float f) {
  unsigned u = __float_as_uint(f);
  unsigned r = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : r);
}
}  // namespace hostcuda

#define HOSTCUDA_HALF(H, H2, to_float, of_float)                                                       \
  struct H##_raw { uint16_t x; };                                                                      \
  struct alignas(2) H {                                                                                \
    uint16_t bits;                                                                                     \
    H() = default;                                                                                     \
    constexpr H(H##_raw r) : bits(r.x) {}                                                              \
    __attribute__((always_inline)) H(float f) : bits(of_float(f)) {}                                   \
    __attribute__((always_inline)) H(double f) : bits(of_float((float)f)) {}                           \
    __attribute__((always_inline)) H(int v) : bits(of_float((float)v)) {}                              \
    __attribute__((always_inline)) H(unsigned v) : bits(of_float((float)v)) {}                         \
    __attribute__((always_inline)) H(long v) : bits(of_float((float)v)) {}                             \
    __attribute__((always_inline)) H(long long v) : bits(of_float((float)v)) {}                        \
    __attribute__((always_inline)) operator float() const { return to_float(bits); }                   \
    __attribute__((always_inline)) H& operator+=(H o) { return *this = H((float)*this + (float)o); }   \
    __attribute__((always_inline)) H& operator-=(H o) { return *this = H((float)*this - (float)o); }   \
    __attribute__((always_inline)) H& operator*=(H o) { return *this = H((float)*this * (float)o); }   \
    __attribute__((always_inline)) H& operator/=(H o) { return *this = H((float)*this / (float)o); }   \
  };                                                                                                   \
  struct alignas(4) H2 {                                                                               \
    H x, y;                                                                                            \
    H2() = default;                                                                                    \
    __attribute__((always_inline)) constexpr H2(H a, H b) : x(a), y(b) {}                              \
  };                                                                                                   \
  HOSTCUDA_HALF_OPERATOR(H, H2, +, add)                                                                \
  HOSTCUDA_HALF_OPERATOR(H, H2, -, sub)                                                                \
  HOSTCUDA_HALF_OPERATOR(H, H2, *, mul)                                                                \
  HOSTCUDA_HALF_OPERATOR(H, H2, /, div)                                                                \
  HOSTCUDA_HALF_COMPARE(H, H2, ==, eq)                                                                 \
  HOSTCUDA_HALF_COMPARE(H, H2, !=, ne)                                                                 \
  HOSTCUDA_HALF_COMPARE(H, H2, <, lt)                                                                  \
  HOSTCUDA_HALF_COMPARE(H, H2, <=, le)                                                                 \
  HOSTCUDA_HALF_COMPARE(H, H2, >, gt)                                                                  \
  HOSTCUDA_HALF_COMPARE(H, H2, >=, ge)                                                                 \
  HOSTCUDA_INLINE H operator-(H a) { H r = a; r.bits = (uint16_t)(a.bits ^ 0x8000); return r; }        \
  HOSTCUDA_INLINE H2 operator-(H2 a) { return H2(-a.x, -a.y); }                                        \
  HOSTCUDA_INLINE H __hneg(H a) { return -a; }                                                         \
  HOSTCUDA_INLINE H2 __hneg2(H2 a) { return -a; }                                                      \
  HOSTCUDA_INLINE H __habs(H a) { H r = a; r.bits = (uint16_t)(a.bits & 0x7fff); return r; }           \
  HOSTCUDA_INLINE H2 __habs2(H2 a) { return H2(__habs(a.x), __habs(a.y)); }                            \
  HOSTCUDA_INLINE H __hfma(H a, H b, H c) { return H(__builtin_fmaf((float)a, (float)b, (float)c)); }  \
  HOSTCUDA_INLINE H2 __hfma2(H2 a, H2 b, H2 c) { return H2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
  HOSTCUDA_INLINE H __hfma_relu(H a, H b, H c) { float r = (float)__hfma(a, b, c); return H(r > 0.f ? r : 0.f); } \
  HOSTCUDA_INLINE H __hmax(H a, H b) { return H(hostcuda::math::fmaxf((float)a, (float)b)); }          \
  HOSTCUDA_INLINE H __hmin(H a, H b) { return H(hostcuda::math::fminf((float)a, (float)b)); }          \
  HOSTCUDA_INLINE H2 __hmax2(H2 a, H2 b) { return H2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }            \
  HOSTCUDA_INLINE H2 __hmin2(H2 a, H2 b) { return H2(__hmin(a.x, b.x), __hmin(a.y, b.y)); }            \
  HOSTCUDA_INLINE bool __hisnan(H a) { return (float)a != (float)a; }                                  \
  HOSTCUDA_INLINE int __hisinf(H a) { return __builtin_isinf((float)a); }                              \
  HOSTCUDA_HALF_FUNCTION(H, H2, exp, hostcuda::math::expf(v))                                          \
  HOSTCUDA_HALF_FUNCTION(H, H2, exp2, hostcuda::math::exp2f(v))                                        \
  HOSTCUDA_HALF_FUNCTION(H, H2, log, hostcuda::math::logf(v))                                          \
  HOSTCUDA_HALF_FUNCTION(H, H2, log2, hostcuda::math::log2f(v))                                        \
  HOSTCUDA_HALF_FUNCTION(H, H2, sqrt, __builtin_sqrtf(v))                                              \
  HOSTCUDA_HALF_FUNCTION(H, H2, rsqrt, 1.f / __builtin_sqrtf(v))                                       \
  HOSTCUDA_HALF_FUNCTION(H, H2, rcp, 1.f / v)                                                          \
  HOSTCUDA_HALF_FUNCTION(H, H2, sin, sinf(v))                                                          \
  HOSTCUDA_HALF_FUNCTION(H, H2, cos, cosf(v))                                                          \
  HOSTCUDA_HALF_FUNCTION(H, H2, tanh, hostcuda::math::tanhf(v))                                        \
  HOSTCUDA_HALF_FUNCTION(H, H2, floor, __builtin_floorf(v))                                            \
  HOSTCUDA_HALF_FUNCTION(H, H2, ceil, __builtin_ceilf(v))                                              \
  HOSTCUDA_HALF_FUNCTION(H, H2, trunc, __builtin_truncf(v))                                            \
  HOSTCUDA_HALF_FUNCTION(H, H2, rint, __builtin_rintf(v))
#define HOSTCUDA_HALF_OPERATOR(H, H2, op, name)                                              \
  HOSTCUDA_INLINE H operator op(H a, H b) { return H((float)a op (float)b); }                \
  HOSTCUDA_INLINE H2 operator op(H2 a, H2 b) { return H2(a.x op b.x, a.y op b.y); }          \
  HOSTCUDA_INLINE H2& operator op##=(H2& a, H2 b) { return a = a op b; }                     \
  HOSTCUDA_INLINE H __h##name(H a, H b) { return a op b; }                                   \
  HOSTCUDA_INLINE H2 __h##name##2(H2 a, H2 b) { return a op b; }
#define HOSTCUDA_HALF_COMPARE(H, H2, op, name)                                               \
  HOSTCUDA_INLINE bool operator op(H a, H b) { return (float)a op (float)b; }                \
  HOSTCUDA_INLINE bool __h##name(H a, H b) { return (float)a op (float)b; }                  \
  HOSTCUDA_INLINE H2 __h##name##2(H2 a, H2 b) { return H2(H(a.x op b.x ? 1.f : 0.f), H(a.y op b.y ? 1.f : 0.f)); }
#define HOSTCUDA_HALF_FUNCTION(H, H2, name, expression)                                      \
  HOSTCUDA_INLINE H h##name(H a) { float v = (float)a; return H(expression); }               \
  HOSTCUDA_INLINE H2 h2##name(H2 a) { return H2(h##name(a.x), h##name(a.y)); }
