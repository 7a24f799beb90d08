// Half precision: see hostcuda/half.h.
#pragma once
#include "cuda_runtime.h"
#include "hostcuda/half.h"

HOSTCUDA_HALF(__half, __half2, hostcuda::float_of_half, hostcuda::half_of_float)
typedef __half half;
typedef __half2 half2;

HOSTCUDA_INLINE float __half2float(__half h) { return (float)h; }
HOSTCUDA_INLINE __half __float2half(float f) { return __half(f); }
HOSTCUDA_INLINE __half __float2half_rn(float f) { return __half(f); }
HOSTCUDA_INLINE __half __double2half(double f) { return __half(f); }
HOSTCUDA_INLINE unsigned short __half_as_ushort(__half h) { return h.bits; }
HOSTCUDA_INLINE __half __ushort_as_half(unsigned short b) { return __half(__half_raw{b}); }
HOSTCUDA_INLINE short __half_as_short(__half h) { return (short)h.bits; }
HOSTCUDA_INLINE __half __short_as_half(short b) { return __half(__half_raw{(unsigned short)b}); }
HOSTCUDA_INLINE float2 __half22float2(__half2 h) { return {(float)h.x, (float)h.y}; }
HOSTCUDA_INLINE __half2 __float22half2_rn(float2 f) { return {__half(f.x), __half(f.y)}; }
HOSTCUDA_INLINE __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
HOSTCUDA_INLINE __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
HOSTCUDA_INLINE __half2 make_half2(__half a, __half b) { return {a, b}; }
HOSTCUDA_INLINE __half2 __halves2half2(__half a, __half b) { return {a, b}; }
HOSTCUDA_INLINE __half2 __half2half2(__half a) { return {a, a}; }
HOSTCUDA_INLINE __half __low2half(__half2 h) { return h.x; }
HOSTCUDA_INLINE __half __high2half(__half2 h) { return h.y; }
HOSTCUDA_INLINE float __low2float(__half2 h) { return (float)h.x; }
HOSTCUDA_INLINE float __high2float(__half2 h) { return (float)h.y; }
HOSTCUDA_INLINE __half2 __lowhigh2highlow(__half2 h) { return {h.y, h.x}; }
HOSTCUDA_HALF_CONVERSIONS(__half, half)
HOSTCUDA_INLINE __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
HOSTCUDA_INLINE __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
HOSTCUDA_INLINE __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
HOSTCUDA_INLINE __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
