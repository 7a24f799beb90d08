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
// To 24 bits so that rounding again to fewer gives what rounding once does: what was cut off leaves
// its trace in the last bit. `rest` has the sign of what s lacks.
HOSTCUDA_INLINE float marked(float s, float rest) {
  const unsigned u = __float_as_uint(s);
  const unsigned odd = (rest > 0.f) == (s > 0.f) ? u + 1 : u - 1;
  return (u & 1u) || !(rest < 0.f || rest > 0.f) ? s : __uint_as_float(odd);
}
HOSTCUDA_INLINE float narrowed(double d) {
  const float f = (float)d;
  return __builtin_fabsf(f) > 3.4028234e38f ? f : marked(f, (float)((d - (double)f) * 1e30));
}
// a b + c of numbers whose product fits 24 bits.
HOSTCUDA_INLINE float marked_fma(float a, float b, float c) {
  const float p = a * b, s = p + c, t = s - p;
  return marked(s, (p - (s - t)) + (c - t));
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
  struct H2##_raw { uint16_t x, y; };                                                                  \
  struct alignas(2) H {                                                                                \
    uint16_t bits;                                                                                     \
    H() = default;                                                                                     \
    constexpr H(H##_raw r) : bits(r.x) {}                                                              \
    __attribute__((always_inline)) H(float f) : bits(of_float(f)) {}                                   \
    __attribute__((always_inline)) H(double f) : bits(of_float(hostcuda::narrowed(f))) {}              \
    __attribute__((always_inline)) H(int v) : bits(of_float(hostcuda::narrowed((double)v))) {}                              \
    __attribute__((always_inline)) H(unsigned v) : bits(of_float(hostcuda::narrowed((double)v))) {}                         \
    __attribute__((always_inline)) H(long v) : bits(of_float(hostcuda::narrowed((double)v))) {}                             \
    __attribute__((always_inline)) H(unsigned long v) : bits(of_float(hostcuda::narrowed((double)v))) {}    \
    __attribute__((always_inline)) H(unsigned long long v) : bits(of_float(hostcuda::narrowed((double)v))) {} \
    __attribute__((always_inline)) H(long long v) : bits(of_float(hostcuda::narrowed((double)v))) {}                        \
    __attribute__((always_inline)) operator float() const { return to_float(bits); }                   \
    __attribute__((always_inline)) H& operator+=(H o) { return *this = H((float)*this + (float)o); }   \
    __attribute__((always_inline)) H& operator-=(H o) { return *this = H((float)*this - (float)o); }   \
    __attribute__((always_inline)) H& operator*=(H o) { return *this = H((float)*this * (float)o); }   \
    __attribute__((always_inline)) H& operator/=(H o) { return *this = H((float)*this / (float)o); }   \
  };                                                                                                   \
  namespace hostcuda { template <> struct IsHalf<H> : std::true_type {}; }                             \
  struct alignas(4) H2 {                                                                               \
    H x, y;                                                                                            \
    H2() = default;                                                                                    \
    __attribute__((always_inline)) constexpr H2(H a, H b) : x(a), y(b) {}                              \
    constexpr H2(H2##_raw r) : x(H##_raw{r.x}), y(H##_raw{r.y}) {}                                     \
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
  HOSTCUDA_INLINE H __hfma(H a, H b, H c) { return H(hostcuda::marked_fma((float)a, (float)b, (float)c)); }  \
  HOSTCUDA_INLINE H2 __hfma2(H2 a, H2 b, H2 c) { return H2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
  HOSTCUDA_INLINE H __hfma_relu(H a, H b, H c) { float r = (float)__hfma(a, b, c); return H(r > 0.f ? r : 0.f); } \
  HOSTCUDA_INLINE H __hmax(H a, H b) { return H(hostcuda::math::fmaxf((float)a, (float)b)); }          \
  HOSTCUDA_INLINE H __hmin(H a, H b) { return H(hostcuda::math::fminf((float)a, (float)b)); }          \
  HOSTCUDA_INLINE H2 __hmax2(H2 a, H2 b) { return H2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }            \
  HOSTCUDA_INLINE H2 __hmin2(H2 a, H2 b) { return H2(__hmin(a.x, b.x), __hmin(a.y, b.y)); }            \
  HOSTCUDA_INLINE bool __hisnan(H a) { return (float)a != (float)a; }                                  \
  HOSTCUDA_INLINE int __hisinf(H a) { return __builtin_isinf((float)a); }                              \
  HOSTCUDA_INLINE H2 __hisnan2(H2 a) { return H2(H(__hisnan(a.x) ? 1.f : 0.f), H(__hisnan(a.y) ? 1.f : 0.f)); } \
  HOSTCUDA_HALF_SATURATED(H, H2, add) \
  HOSTCUDA_HALF_SATURATED(H, H2, sub) \
  HOSTCUDA_HALF_SATURATED(H, H2, mul) \
  HOSTCUDA_INLINE H __hfma_sat(H a, H b, H c) { return H(__saturatef((float)__hfma(a, b, c))); }       \
  HOSTCUDA_INLINE H2 __hfma2_sat(H2 a, H2 b, H2 c) { return H2(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)); } \
  HOSTCUDA_INLINE H2 __hfma2_relu(H2 a, H2 b, H2 c) { return H2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)); } \
  HOSTCUDA_INLINE H __hmax_nan(H a, H b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmax(a, b); }  \
  HOSTCUDA_INLINE H __hmin_nan(H a, H b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmin(a, b); }  \
  HOSTCUDA_INLINE H2 __hmax2_nan(H2 a, H2 b) { return H2(__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y)); } \
  HOSTCUDA_INLINE H2 __hmin2_nan(H2 a, H2 b) { return H2(__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y)); } \
  HOSTCUDA_INLINE H2 __h2div(H2 a, H2 b) { return a / b; }                                             \
  HOSTCUDA_INLINE H& operator++(H& a) { return a = a + H(1.f); }                                       \
  HOSTCUDA_INLINE H& operator--(H& a) { return a = a - H(1.f); }                                       \
  HOSTCUDA_INLINE H2 atomicAdd(H2* p, H2 v) { return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)}; } \
  HOSTCUDA_HALF_FUNCTION(H, H2, exp10, ::exp10f(v))                                                    \
  HOSTCUDA_HALF_FUNCTION(H, H2, log10, hostcuda::math::log10f(v))                                      \
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
  HOSTCUDA_INLINE H __h##name##_rn(H a, H b) { return a op b; }                              \
  HOSTCUDA_INLINE H2 __h##name##2_rn(H2 a, H2 b) { return a op b; }                          \
  HOSTCUDA_INLINE H2 __h##name##2(H2 a, H2 b) { return a op b; }
#define HOSTCUDA_HALF_SATURATED(H, H2, name)                                                 \
  HOSTCUDA_INLINE H __h##name##_sat(H a, H b) { return H(__saturatef((float)__h##name(a, b))); } \
  HOSTCUDA_INLINE H2 __h##name##2_sat(H2 a, H2 b) { return H2(__h##name##_sat(a.x, b.x), __h##name##_sat(a.y, b.y)); }
#define HOSTCUDA_UNORDERED(a, b) ((float)a != (float)a || (float)b != (float)b)
#define HOSTCUDA_HALF_COMPARE(H, H2, op, name)                                               \
  HOSTCUDA_INLINE bool operator op(H a, H b) { return (float)a op (float)b; }                \
  HOSTCUDA_INLINE bool __h##name(H a, H b) { return (float)a op (float)b && !HOSTCUDA_UNORDERED(a, b); } \
  HOSTCUDA_INLINE bool __h##name##u(H a, H b) { return (float)a op (float)b || HOSTCUDA_UNORDERED(a, b); } \
  HOSTCUDA_INLINE bool __hb##name##2(H2 a, H2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); } \
  HOSTCUDA_INLINE bool __hb##name##u2(H2 a, H2 b) { return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y); } \
  HOSTCUDA_INLINE unsigned __h##name##2_mask(H2 a, H2 b) { return (__h##name(a.x, b.x) ? 0xffffu : 0u) | (__h##name(a.y, b.y) ? 0xffff0000u : 0u); } \
  HOSTCUDA_INLINE H2 __h##name##u2(H2 a, H2 b) { return H2(H(__h##name##u(a.x, b.x) ? 1.f : 0.f), H(__h##name##u(a.y, b.y) ? 1.f : 0.f)); } \
  HOSTCUDA_INLINE H2 __h##name##2(H2 a, H2 b) { return H2(H(__h##name(a.x, b.x) ? 1.f : 0.f), H(__h##name(a.y, b.y) ? 1.f : 0.f)); }
#define HOSTCUDA_HALF_FUNCTION(H, H2, name, expression)                                      \
  HOSTCUDA_INLINE H h##name(H a) { float v = (float)a; return H(expression); }               \
  HOSTCUDA_INLINE H2 h2##name(H2 a) { return H2(h##name(a.x), h##name(a.y)); }

// Conversions of a format H, whose name within functions' names is `h`.
#define HOSTCUDA_HALF_INTEGER(H, h, I, name)                                                 \
  HOSTCUDA_INLINE I __##h##2##name##_rn(H a) { return hostcuda::to<I>(__builtin_rintf((float)a)); } \
  HOSTCUDA_INLINE I __##h##2##name##_rz(H a) { return hostcuda::to<I>(a); }                  \
  HOSTCUDA_INLINE I __##h##2##name##_rd(H a) { return hostcuda::to<I>(__builtin_floorf((float)a)); } \
  HOSTCUDA_INLINE I __##h##2##name##_ru(H a) { return hostcuda::to<I>(__builtin_ceilf((float)a)); } \
  HOSTCUDA_INLINE H __##name##2##h##_rn(I a) { return H(hostcuda::narrowed((double)a)); }    \
  HOSTCUDA_HALF_DIRECTED(H, I, __##name##2##h)
#define HOSTCUDA_HALF_SHORT(H, h, I, name)                                                   \
  HOSTCUDA_INLINE I __##h##2##name##_rn(H a) { return hostcuda::limited<I>(__builtin_rintf((float)a)); } \
  HOSTCUDA_INLINE I __##h##2##name##_rz(H a) { return hostcuda::limited<I>(a); }             \
  HOSTCUDA_INLINE I __##h##2##name##_rd(H a) { return hostcuda::limited<I>(__builtin_floorf((float)a)); } \
  HOSTCUDA_INLINE I __##h##2##name##_ru(H a) { return hostcuda::limited<I>(__builtin_ceilf((float)a)); } \
  HOSTCUDA_INLINE H __##name##2##h##_rn(I a) { return H((float)a); }                         \
  HOSTCUDA_HALF_DIRECTED(H, I, __##name##2##h)
// Directed: the nearest, and from there one step where it is on the wrong side.
#define HOSTCUDA_HALF_DIRECTED(H, T, name)                                                   \
  HOSTCUDA_INLINE H name##_rz(T a) { return hostcuda::stepped<H>(a, 0); }                    \
  HOSTCUDA_INLINE H name##_ru(T a) { return hostcuda::stepped<H>(a, 1); }                    \
  HOSTCUDA_INLINE H name##_rd(T a) { return hostcuda::stepped<H>(a, -1); }
namespace hostcuda {
template <class H, class T>
inline H stepped(T value, int direction) {
  const double v = (double)value;
  H h(narrowed(v));
  const double got = (double)(float)h;
  const bool above = got > v, negative = h.bits >> 15;
  if (!(got != v) || v != v || __builtin_isinf(v)) return h;
  const bool down = above && (direction < 0 || (direction == 0 && v > 0.));
  const bool up = !above && (direction > 0 || (direction == 0 && v < 0.));
  if (down || up) {
    if ((h.bits & 0x7fff) == 0)
      h.bits = down ? 0x8001 : 1;
    else
      h.bits = (uint16_t)(h.bits + (negative == down ? 1 : -1));
  }
  return h;
}
}  // namespace hostcuda
namespace hostcuda {
// These saturate at the narrow type's own limits, unlike casts.
template <class I, class V>
__attribute__((always_inline)) inline I limited(V v) {
  const int x = saturated<int>((float)v), low = std::numeric_limits<I>::min(), high = std::numeric_limits<I>::max();
  return (I)(x < low ? low : x > high ? high : x);
}
}  // namespace hostcuda
#define HOSTCUDA_HALF_CONVERSIONS(H, h)                                                      \
  HOSTCUDA_HALF_INTEGER(H, h, int, int) HOSTCUDA_HALF_INTEGER(H, h, unsigned, uint)          \
  HOSTCUDA_HALF_SHORT(H, h, short, short) HOSTCUDA_HALF_SHORT(H, h, unsigned short, ushort)  \
  HOSTCUDA_HALF_INTEGER(H, h, long long, ll) HOSTCUDA_HALF_INTEGER(H, h, unsigned long long, ull) \
  HOSTCUDA_INLINE signed char __##h##2char_rz(H a) { return hostcuda::limited<signed char>(a); } \
  HOSTCUDA_INLINE unsigned char __##h##2uchar_rz(H a) { return hostcuda::limited<unsigned char>(a); } \
  HOSTCUDA_HALF_DIRECTED(H, float, __float2##h)
