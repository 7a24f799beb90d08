// bfloat16: see hostcuda/half.h.
#pragma once
#include "cuda_runtime.h"
#include "hostcuda/half.h"

HOSTCUDA_HALF(__nv_bfloat16, __nv_bfloat162, hostcuda::float_of_bf16, hostcuda::bf16_of_float)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

HOSTCUDA_INLINE float __bfloat162float(__nv_bfloat16 h) { return (float)h; }
HOSTCUDA_INLINE __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
HOSTCUDA_INLINE __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
HOSTCUDA_INLINE __nv_bfloat16 __double2bfloat16(double f) { return __nv_bfloat16(f); }
HOSTCUDA_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
HOSTCUDA_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short b) { return __nv_bfloat16(__nv_bfloat16_raw{b}); }
HOSTCUDA_INLINE short __bfloat16_as_short(__nv_bfloat16 h) { return (short)h.bits; }
HOSTCUDA_INLINE __nv_bfloat16 __short_as_bfloat16(short b) { return __nv_bfloat16(__nv_bfloat16_raw{(unsigned short)b}); }
HOSTCUDA_INLINE float2 __bfloat1622float2(__nv_bfloat162 h) { return {(float)h.x, (float)h.y}; }
HOSTCUDA_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 f) { return {__nv_bfloat16(f.x), __nv_bfloat16(f.y)}; }
HOSTCUDA_INLINE __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
HOSTCUDA_INLINE __nv_bfloat162 __float2bfloat162_rn(float a) { return {__nv_bfloat16(a), __nv_bfloat16(a)}; }
HOSTCUDA_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
HOSTCUDA_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
HOSTCUDA_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
HOSTCUDA_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 h) { return h.x; }
HOSTCUDA_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 h) { return h.y; }
HOSTCUDA_INLINE float __low2float(__nv_bfloat162 h) { return (float)h.x; }
HOSTCUDA_INLINE float __high2float(__nv_bfloat162 h) { return (float)h.y; }
HOSTCUDA_INLINE __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 h) { return {h.y, h.x}; }
HOSTCUDA_HALF_CONVERSIONS(__nv_bfloat16, bfloat16)
HOSTCUDA_INLINE __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
HOSTCUDA_INLINE __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }
HOSTCUDA_INLINE __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return {a.x, a.x}; }
HOSTCUDA_INLINE __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return {a.y, a.y}; }
