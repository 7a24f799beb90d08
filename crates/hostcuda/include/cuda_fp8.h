// 8-bit floating point: storage only, as in CUDA. Every conversion rounds once, to nearest, ties to even.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

typedef uint8_t __nv_fp8_storage_t;
typedef uint16_t __nv_fp8x2_storage_t;
typedef uint32_t __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace hostcuda {
// The exponent is moved to where a float has it; the product corrects its bias.
HOSTCUDA_INLINE float float_of_e4m3(uint8_t b) {
  const unsigned magnitude = (unsigned)(b & 0x7f) << 20, sign = (unsigned)(b & 0x80) << 24;
  const unsigned finite = __float_as_uint(__uint_as_float(magnitude) * 1.329227995784916e36f);  // 2^120
  return __uint_as_float(((b & 0x7f) == 0x7f ? 0x7fffffffu : finite) | sign);
}
// The upper half of a binary16.
HOSTCUDA_INLINE float float_of_e5m2(uint8_t b) { return float_of_half((uint16_t)(b << 8)); }
// Numbers below the least normal one are rounded by adding a number whose unit is theirs.
HOSTCUDA_INLINE uint8_t e4m3_of_float(float f, bool saturate) {
  const unsigned bits = __float_as_uint(f), u = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  const unsigned normal = (u - 0x3c000000u + 0x7ffffu + (u >> 20 & 1u)) >> 20;
  const unsigned tiny = __float_as_uint(__uint_as_float(u) + 16384.f) - 0x46800000u;
  unsigned r = u < 0x3c800000u ? tiny : normal;
  r = r > 0x7eu ? (saturate ? 0x7eu : 0x7fu) : r;
  r = u > 0x7f800000u ? 0x7fu : r;
  return (uint8_t)(r | sign);
}
HOSTCUDA_INLINE uint8_t e5m2_of_float(float f, bool saturate) {
  const unsigned bits = __float_as_uint(f), u = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  const unsigned normal = (u - 0x38000000u + 0xfffffu + (u >> 21 & 1u)) >> 21;
  const unsigned tiny = __float_as_uint(__uint_as_float(u) + 128.f) - 0x43000000u;
  unsigned r = u < 0x38800000u ? tiny : normal;
  r = r > 0x7bu ? (saturate ? 0x7bu : 0x7cu) : r;
  r = u > 0x7f800000u ? 0x7fu : r;
  return (uint8_t)(r | sign);
}
}  // namespace hostcuda

HOSTCUDA_INLINE __nv_fp8_storage_t __nv_cvt_float_to_fp8(float f, __nv_saturation_t s, __nv_fp8_interpretation_t i) {
  const bool saturate = s == __NV_SATFINITE;
  return i == __NV_E4M3 ? hostcuda::e4m3_of_float(f, saturate) : hostcuda::e5m2_of_float(f, saturate);
}
HOSTCUDA_INLINE __nv_fp8_storage_t __nv_cvt_double_to_fp8(double d, __nv_saturation_t s, __nv_fp8_interpretation_t i) {
  return __nv_cvt_float_to_fp8(hostcuda::narrowed(d), s, i);
}
HOSTCUDA_INLINE __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw h, __nv_saturation_t s, __nv_fp8_interpretation_t i) {
  return __nv_cvt_float_to_fp8(hostcuda::float_of_half(h.x), s, i);
}
HOSTCUDA_INLINE __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw b, __nv_saturation_t s, __nv_fp8_interpretation_t i) {
  return __nv_cvt_float_to_fp8(hostcuda::float_of_bf16(b.x), s, i);
}
HOSTCUDA_INLINE __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 f, __nv_saturation_t s, __nv_fp8_interpretation_t i) {
  return (__nv_fp8x2_storage_t)(__nv_cvt_float_to_fp8(f.y, s, i) << 8 | __nv_cvt_float_to_fp8(f.x, s, i));
}
HOSTCUDA_INLINE __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 d, __nv_saturation_t s, __nv_fp8_interpretation_t i) {
  return (__nv_fp8x2_storage_t)(__nv_cvt_double_to_fp8(d.y, s, i) << 8 | __nv_cvt_double_to_fp8(d.x, s, i));
}
// Every 8-bit number is one in half precision.
HOSTCUDA_INLINE __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t b, __nv_fp8_interpretation_t i) {
  return {hostcuda::half_of_float(i == __NV_E4M3 ? hostcuda::float_of_e4m3(b) : hostcuda::float_of_e5m2(b))};
}
HOSTCUDA_INLINE __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t b, __nv_fp8_interpretation_t i) {
  return {__nv_cvt_fp8_to_halfraw((uint8_t)b, i).x, __nv_cvt_fp8_to_halfraw((uint8_t)(b >> 8), i).x};
}
HOSTCUDA_INLINE __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw h, __nv_saturation_t s, __nv_fp8_interpretation_t i) {
  return __nv_cvt_float2_to_fp8x2({hostcuda::float_of_half(h.x), hostcuda::float_of_half(h.y)}, s, i);
}

#define HOSTCUDA_FP8(F, F2, F4, kind, to_float)                                                       \
  struct F {                                                                                          \
    __nv_fp8_storage_t __x;                                                                           \
    F() = default;                                                                                    \
    explicit F(float v) : __x(__nv_cvt_float_to_fp8(v, __NV_SATFINITE, kind)) {}                      \
    explicit F(double v) : __x(__nv_cvt_double_to_fp8(v, __NV_SATFINITE, kind)) {}                    \
    explicit F(__half v) : F((float)v) {}                                                             \
    explicit F(__nv_bfloat16 v) : F((float)v) {}                                                      \
    explicit F(short v) : F((float)v) {}                                                              \
    explicit F(unsigned short v) : F((float)v) {}                                                     \
    explicit F(int v) : F((double)v) {}                                                               \
    explicit F(unsigned v) : F((double)v) {}                                                          \
    explicit F(long v) : F((double)v) {}                                                              \
    explicit F(unsigned long v) : F((double)v) {}                                                     \
    explicit F(long long v) : F((double)v) {}                                                         \
    explicit F(unsigned long long v) : F((double)v) {}                                                \
    explicit operator float() const { return to_float(__x); }                                         \
    explicit operator double() const { return (double)to_float(__x); }                                \
    explicit operator __half() const { return __half(to_float(__x)); }                                \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(to_float(__x)); }                  \
    explicit operator bool() const { return (__x & 0x7f) != 0; }                                      \
    explicit operator int() const { return (int)to_float(__x); }                                      \
    explicit operator unsigned() const { return (unsigned)to_float(__x); }                            \
    explicit operator short() const { return (short)to_float(__x); }                                  \
    explicit operator unsigned short() const { return (unsigned short)to_float(__x); }                \
    explicit operator signed char() const { return (signed char)to_float(__x); }                      \
    explicit operator unsigned char() const { return (unsigned char)to_float(__x); }                  \
    explicit operator long long() const { return (long long)to_float(__x); }                          \
    explicit operator unsigned long long() const { return (unsigned long long)to_float(__x); }        \
  };                                                                                                  \
  struct alignas(2) F2 {                                                                              \
    __nv_fp8x2_storage_t __x;                                                                         \
    F2() = default;                                                                                   \
    explicit F2(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {}                 \
    explicit F2(double2 v) : __x(__nv_cvt_double2_to_fp8x2(v, __NV_SATFINITE, kind)) {}               \
    explicit F2(__half2 v) : F2(float2{(float)v.x, (float)v.y}) {}                                    \
    explicit F2(__nv_bfloat162 v) : F2(float2{(float)v.x, (float)v.y}) {}                             \
    explicit operator float2() const { return {to_float((uint8_t)__x), to_float((uint8_t)(__x >> 8))}; } \
    explicit operator __half2() const {                                                               \
      return __half2(__half(to_float((uint8_t)__x)), __half(to_float((uint8_t)(__x >> 8))));          \
    }                                                                                                 \
  };                                                                                                  \
  struct alignas(4) F4 {                                                                              \
    __nv_fp8x4_storage_t __x;                                                                         \
    F4() = default;                                                                                   \
    explicit F4(float4 v)                                                                             \
        : __x((unsigned)F2(float2{v.z, v.w}).__x << 16 | F2(float2{v.x, v.y}).__x) {}                 \
    explicit F4(__half2 low, __half2 high) : __x((unsigned)F2(high).__x << 16 | F2(low).__x) {}       \
    explicit F4(__nv_bfloat162 low, __nv_bfloat162 high)                                              \
        : __x((unsigned)F2(high).__x << 16 | F2(low).__x) {}                                          \
    explicit operator float4() const {                                                                \
      return {to_float((uint8_t)__x), to_float((uint8_t)(__x >> 8)), to_float((uint8_t)(__x >> 16)),  \
              to_float((uint8_t)(__x >> 24))};                                                        \
    }                                                                                                 \
  };

HOSTCUDA_FP8(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3, hostcuda::float_of_e4m3)
HOSTCUDA_FP8(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2, hostcuda::float_of_e5m2)
#undef HOSTCUDA_FP8
