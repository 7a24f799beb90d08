// Integer intrinsics, and those that see a word as two or four numbers.
#pragma once
#include <cstdint>

#include "hostcuda/convert.h"
#include "hostcuda/vector_types.h"

#ifndef HOSTCUDA_INLINE
#define HOSTCUDA_INLINE static inline __attribute__((always_inline))
#endif

HOSTCUDA_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
HOSTCUDA_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
HOSTCUDA_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
HOSTCUDA_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
HOSTCUDA_INLINE int __ffs(int x) { return __builtin_ffs(x); }
HOSTCUDA_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
HOSTCUDA_INLINE unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
HOSTCUDA_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  uint64_t v = (uint64_t)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= (unsigned)(v >> ((s >> 4 * i & 7) * 8) & 255) << 8 * i;
  return r;
}
HOSTCUDA_INLINE unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
// The position of the n-th set bit of mask, from bit `base` upwards or downwards.
static inline unsigned __fns(unsigned mask, unsigned base, int n) {
  if (n == 0) return mask >> (base & 31) & 1 ? base : ~0u;
  for (int i = (int)base; i >= 0 && i < 32; i += n > 0 ? 1 : -1)
    if (mask >> i & 1 && (n > 0 ? --n : ++n) == 0) return (unsigned)i;
  return ~0u;
}
HOSTCUDA_INLINE int __mul24(int a, int b) { return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8)); }
HOSTCUDA_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
HOSTCUDA_INLINE int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
HOSTCUDA_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
HOSTCUDA_INLINE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
HOSTCUDA_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
HOSTCUDA_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
HOSTCUDA_INLINE unsigned __sad(int a, int b, unsigned c) { return (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a) + c; }
HOSTCUDA_INLINE int __hadd(int a, int b) { return (int)(((int64_t)a + b) >> 1); }
HOSTCUDA_INLINE int __rhadd(int a, int b) { return (int)(((int64_t)a + b + 1) >> 1); }
HOSTCUDA_INLINE unsigned __uhadd(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a + b) >> 1); }
HOSTCUDA_INLINE unsigned __urhadd(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a + b + 1) >> 1); }
HOSTCUDA_INLINE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { return (unsigned)((((uint64_t)hi << 32 | lo) << (s & 31)) >> 32); }
HOSTCUDA_INLINE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((uint64_t)hi << 32 | lo) >> (s & 31)); }
HOSTCUDA_INLINE unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned s) { return s >= 32 ? lo : __funnelshift_l(lo, hi, s); }
HOSTCUDA_INLINE unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned s) { return s >= 32 ? hi : __funnelshift_r(lo, hi, s); }

namespace hostcuda {
// Number i of a word of numbers of type T.
template <class T>
__attribute__((always_inline)) inline T part(unsigned word, unsigned i) { return (T)(word >> 8 * sizeof(T) * i); }
// A word whose numbers are f of those of a and b.
template <class T, class F>
__attribute__((always_inline)) inline unsigned parts(unsigned a, unsigned b, F f) {
  using Bits = std::make_unsigned_t<T>;
  unsigned r = 0;
  for (unsigned i = 0; i < 4 / sizeof(T); ++i) r |= (unsigned)(Bits)f((int)part<T>(a, i), (int)part<T>(b, i)) << 8 * sizeof(T) * i;
  return r;
}
template <class T>
__attribute__((always_inline)) inline int clamped(int v) {
  constexpr int low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  return v < low ? low : v > high ? high : v;
}
template <class A, class B>
__attribute__((always_inline)) inline unsigned dot(unsigned a, unsigned b, unsigned from, unsigned c) {
  for (unsigned i = 0; i < 4 / sizeof(A); ++i) c += (unsigned)((int)part<A>(a, i) * (int)part<B>(b, from + i));
  return c;
}
}  // namespace hostcuda
HOSTCUDA_INLINE int __dp4a(int a, int b, int c) { return (int)hostcuda::dot<int8_t, int8_t>((unsigned)a, (unsigned)b, 0, (unsigned)c); }
HOSTCUDA_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return hostcuda::dot<uint8_t, uint8_t>(a, b, 0, c); }
HOSTCUDA_INLINE int __dp2a_lo(int a, int b, int c) { return (int)hostcuda::dot<int16_t, int8_t>((unsigned)a, (unsigned)b, 0, (unsigned)c); }
HOSTCUDA_INLINE unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) { return hostcuda::dot<uint16_t, uint8_t>(a, b, 0, c); }
HOSTCUDA_INLINE int __dp2a_hi(int a, int b, int c) { return (int)hostcuda::dot<int16_t, int8_t>((unsigned)a, (unsigned)b, 2, (unsigned)c); }
HOSTCUDA_INLINE unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return hostcuda::dot<uint16_t, uint8_t>(a, b, 2, c); }
HOSTCUDA_INLINE int __dp4a(char4 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
HOSTCUDA_INLINE unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) { return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

// name2 and name4: of two numbers of 16 bits and four of 8.
#define HOSTCUDA_PARTS(name, S2, S4, expression)                                                                      \
  HOSTCUDA_INLINE unsigned name##2(unsigned a, unsigned b) {                                                          \
    using T = S2;                                                                                                     \
    return hostcuda::parts<T>(a, b, [](int x, int y) { return expression; });                                         \
  }                                                                                                                   \
  HOSTCUDA_INLINE unsigned name##4(unsigned a, unsigned b) {                                                          \
    using T = S4;                                                                                                     \
    return hostcuda::parts<T>(a, b, [](int x, int y) { return expression; });                                         \
  }
#define HOSTCUDA_PARTS_S(name, expression) HOSTCUDA_PARTS(name, int16_t, int8_t, expression)
#define HOSTCUDA_PARTS_U(name, expression) HOSTCUDA_PARTS(name, uint16_t, uint8_t, expression)
#define HOSTCUDA_COMPARE(name, sign, op)                                                                              \
  HOSTCUDA_PARTS_##sign(__vcmp##name, x op y ? -1 : 0) HOSTCUDA_PARTS_##sign(__vset##name, x op y)
HOSTCUDA_PARTS_U(__vadd, x + y)
HOSTCUDA_PARTS_S(__vaddss, hostcuda::clamped<T>(x + y))
HOSTCUDA_PARTS_U(__vaddus, hostcuda::clamped<T>(x + y))
HOSTCUDA_PARTS_U(__vsub, x - y)
HOSTCUDA_PARTS_S(__vsubss, hostcuda::clamped<T>(x - y))
HOSTCUDA_PARTS_U(__vsubus, hostcuda::clamped<T>(x - y))
HOSTCUDA_PARTS_S(__vavgs, (x + y + (x + y >= 0)) >> 1)
HOSTCUDA_PARTS_U(__vavgu, (x + y + 1) >> 1)
HOSTCUDA_PARTS_U(__vhaddu, (x + y) >> 1)
HOSTCUDA_PARTS_S(__vabsdiffs, x > y ? x - y : y - x)
HOSTCUDA_PARTS_U(__vabsdiffu, x > y ? x - y : y - x)
HOSTCUDA_PARTS_S(__vmaxs, x > y ? x : y)
HOSTCUDA_PARTS_U(__vmaxu, x > y ? x : y)
HOSTCUDA_PARTS_S(__vmins, x < y ? x : y)
HOSTCUDA_PARTS_U(__vminu, x < y ? x : y)
HOSTCUDA_COMPARE(eq, U, ==) HOSTCUDA_COMPARE(ne, U, !=)
HOSTCUDA_COMPARE(ges, S, >=) HOSTCUDA_COMPARE(geu, U, >=) HOSTCUDA_COMPARE(gts, S, >) HOSTCUDA_COMPARE(gtu, U, >)
HOSTCUDA_COMPARE(les, S, <=) HOSTCUDA_COMPARE(leu, U, <=) HOSTCUDA_COMPARE(lts, S, <) HOSTCUDA_COMPARE(ltu, U, <)
#define HOSTCUDA_UNARY(name, expression)                                                                              \
  HOSTCUDA_PARTS_S(hostcuda##name, ((void)y, expression))                                                             \
  HOSTCUDA_INLINE unsigned name##2(unsigned a) { return hostcuda##name##2(a, 0); }                                    \
  HOSTCUDA_INLINE unsigned name##4(unsigned a) { return hostcuda##name##4(a, 0); }
HOSTCUDA_UNARY(__vabs, x < 0 ? -x : x)
HOSTCUDA_UNARY(__vabsss, hostcuda::clamped<T>(x < 0 ? -x : x))
HOSTCUDA_UNARY(__vneg, -x)
HOSTCUDA_UNARY(__vnegss, hostcuda::clamped<T>(-x))
HOSTCUDA_INLINE unsigned __vsads2(unsigned a, unsigned b) { a = __vabsdiffs2(a, b); return (a & 0xffff) + (a >> 16); }
HOSTCUDA_INLINE unsigned __vsadu2(unsigned a, unsigned b) { a = __vabsdiffu2(a, b); return (a & 0xffff) + (a >> 16); }
HOSTCUDA_INLINE unsigned __vsads4(unsigned a, unsigned b) { return hostcuda::dot<uint8_t, uint8_t>(__vabsdiffs4(a, b), 0x01010101u, 0, 0); }
HOSTCUDA_INLINE unsigned __vsadu4(unsigned a, unsigned b) { return hostcuda::dot<uint8_t, uint8_t>(__vabsdiffu4(a, b), 0x01010101u, 0, 0); }

// Minima and maxima of several.
#define HOSTCUDA_SEVERAL(T, s)                                                                                        \
  HOSTCUDA_INLINE T __vimax3_##s(T a, T b, T c) { a = a > b ? a : b; return a > c ? a : c; }                          \
  HOSTCUDA_INLINE T __vimin3_##s(T a, T b, T c) { a = a < b ? a : b; return a < c ? a : c; }                          \
  HOSTCUDA_INLINE T __viaddmax_##s(T a, T b, T c) { a = (T)((unsigned)a + (unsigned)b); return a > c ? a : c; }       \
  HOSTCUDA_INLINE T __viaddmin_##s(T a, T b, T c) { a = (T)((unsigned)a + (unsigned)b); return a < c ? a : c; }
HOSTCUDA_SEVERAL(int, s32) HOSTCUDA_SEVERAL(unsigned, u32)
HOSTCUDA_INLINE int __vimax_s32_relu(int a, int b) { return __vimax3_s32(a, b, 0); }
HOSTCUDA_INLINE int __vimin_s32_relu(int a, int b) { a = a < b ? a : b; return a > 0 ? a : 0; }
HOSTCUDA_INLINE unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
HOSTCUDA_INLINE unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
HOSTCUDA_INLINE long long llmin(long long a, long long b) { return a < b ? a : b; }
HOSTCUDA_INLINE long long llmax(long long a, long long b) { return a > b ? a : b; }
HOSTCUDA_INLINE unsigned long long ullmin(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
HOSTCUDA_INLINE unsigned long long ullmax(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
