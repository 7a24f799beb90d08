// Device functions and intrinsics against tables, other formulas, and what their definitions say.
#include <climits>
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "check.cuh"

#define NEAR(i, got, want, relative) near_by(__LINE__, i, got, want, relative)
static void near_by(int line, int i, double got, double want, double relative) {
    const bool same = got == want || (got != got && want != want);
    if (!same && !(fabs(got - want) <= relative * fabs(want)) && ++failures < 40)
        printf("line %d, i = %d: %.17g instead of %.17g\n", line, i, got, want);
}

__global__ void words(const unsigned* a, const unsigned* b, unsigned* o) {
    int i = threadIdx.x;
    unsigned x = a[i], y = b[i], *p = o + 64 * i;
    p[0] = __popc(x); p[1] = __clz((int)x); p[2] = __ffs((int)x); p[3] = __brev(x);
    p[4] = __mulhi((int)x, (int)y); p[5] = __umulhi(x, y); p[6] = __mul24((int)x, (int)y); p[7] = __umul24(x, y);
    p[8] = __sad((int)x, (int)y, 5u); p[9] = __usad(x, y, 5u); p[10] = __hadd((int)x, (int)y); p[11] = __rhadd((int)x, (int)y);
    p[12] = __uhadd(x, y); p[13] = __urhadd(x, y); p[14] = __funnelshift_l(x, y, y & 63); p[15] = __funnelshift_r(x, y, y & 63);
    p[16] = __funnelshift_lc(x, y, y & 63); p[17] = __funnelshift_rc(x, y, y & 63); p[18] = __byte_perm(x, y, 0x7351);
    p[19] = __dp4a((int)x, (int)y, 7); p[20] = __dp4a(x, y, 7u); p[21] = __dp2a_lo((int)x, (int)y, 7); p[22] = __dp2a_hi(x, y, 7u);
    p[23] = __vadd4(x, y); p[24] = __vadd2(x, y); p[25] = __vaddss4(x, y); p[26] = __vaddus2(x, y); p[27] = __vsub4(x, y);
    p[28] = __vsubus4(x, y); p[29] = __vmaxs4(x, y); p[30] = __vminu2(x, y); p[31] = __vabs4(x); p[32] = __vabsdiffu4(x, y);
    p[33] = __vcmpeq4(x, y & 0xff00ff00u | x & 0x00ff00ffu); p[34] = __vcmpgts2(x, y); p[35] = __vsetltu4(x, y); p[36] = __vavgu4(x, y);
    p[37] = __vsadu4(x, y); p[38] = __vneg2(x); p[39] = __vsubss2(x, y);
    p[40] = __popcll((unsigned long long)x << 32 | y); p[41] = __clzll((long long)y); p[42] = __ffsll((long long)x << 20);
    p[43] = (unsigned)(__brevll((unsigned long long)x << 32 | y) >> 32);
    p[44] = (unsigned)__mul64hi((long long)x << 31 | y, -((long long)y << 29)); p[45] = (unsigned)__umul64hi((unsigned long long)x << 32, (unsigned long long)y << 32 | x);
    p[46] = (unsigned)__double2hiint(__hiloint2double((int)x, (int)y)); p[47] = (unsigned)__double2loint(__hiloint2double((int)x, (int)y));
    p[48] = __float_as_uint(__uint_as_float(x & 0xff7fffffu)); p[49] = __vimax3_s32((int)x, (int)y, 3); p[50] = __viaddmin_u32(x, y, 77u);
    p[51] = umin(x, y) ^ umax(x, 9u) ^ (unsigned)llmax((long long)x, -1ll); p[52] = __fns(x, 0, 3);
}
static unsigned each(unsigned a, unsigned b, int bits, long long (*f)(long long, long long), bool is_signed) {
    unsigned r = 0;
    for (int s = 0; s < 32; s += bits) {
        const unsigned mask = bits == 32 ? ~0u : (1u << bits) - 1;
        long long x = a >> s & mask, y = b >> s & mask;
        if (is_signed) { x -= x >> (bits - 1) << bits; y -= y >> (bits - 1) << bits; }
        r |= ((unsigned)f(x, y) & mask) << s;
    }
    return r;
}
typedef long long L;
static L clip(L v, L a, L b) { return v < a ? a : v > b ? b : v; }

__global__ void singles(const float* x, double* o) {
    float v = x[threadIdx.x];
    double* p = o + 40 * threadIdx.x;
    p[0] = rsqrtf(v); p[1] = rcbrtf(v); p[2] = norm3df(v, 2.f, -3.f); p[3] = norm4df(v, 1.f, 2.f, 3.f); p[4] = hypotf(v, 2.f); p[5] = rhypotf(v, 2.f);
    p[6] = sinpif(v); p[7] = cospif(v); p[8] = erfcxf(v); p[9] = erfinvf(v / 20.f); p[10] = normcdff(v); p[11] = lgammaf(v); p[12] = j0f(v); p[13] = y1f(v);
    p[14] = fdividef(v, 3.f); p[15] = __fdividef(v, 3.f); p[16] = exp10f(v); p[17] = __exp10f(v); p[18] = ldexpf(v, 3); p[19] = scalbnf(v, -2);
    p[20] = nextafterf(v, 100.f); p[21] = fmodf(v, 1.5f); p[22] = remainderf(v, 1.5f); int q; p[23] = remquof(v, 1.5f, &q) + 100 * (q & 7);
    int e; p[24] = frexpf(v, &e) + e; float w; p[25] = modff(v, &w) + 10 * w; p[26] = __saturatef(v); p[27] = erfcinvf(v / 10.f); p[28] = normcdfinvf(v / 20.f);
    p[29] = cyl_bessel_i0f(v); p[30] = cyl_bessel_i1f(v); p[31] = __powf(v, 1.5f); p[32] = cbrtf(v); p[33] = tgammaf(v); p[34] = logbf(v) + ilogbf(v);
    float s, c; sincospif(v, &s, &c); p[35] = s + 3 * c; sincosf(v, &s, &c); p[36] = s + 3 * c; __sincosf(v, &s, &c); p[37] = s + 3 * c;
    p[38] = fdimf(v, 1.f) + copysignf(2.f, -v) + truncf(v) + rintf(v) + nearbyintf(v) + floorf(v) + ceilf(v) + lrintf(v) + llroundf(v) + signbit(v) + isfinite(v);
    p[39] = rnorm3df(v, 1.f, 1.f) + __frsqrt_rn(v) + fmaf(v, v, 1.f) + expm1f(v) + log1pf(v) + atan2f(v, 2.f) + asinhf(v) + acoshf(v + 1.f) + atanhf(v / 10.f) + __tanf(v);
}
__global__ void doubles(const double* x, double* o) {
    double v = x[threadIdx.x];
    double* p = o + 16 * threadIdx.x;
    p[0] = rsqrt(v); p[1] = rcbrt(v); p[2] = norm3d(v, 2., -3.); p[3] = sinpi(v); p[4] = cospi(v); p[5] = erfcx(v); p[6] = erfinv(v / 20); p[7] = normcdf(v);
    p[8] = exp10(v); p[9] = normcdfinv(v / 20); p[10] = erfcinv(v / 10); p[11] = j1(v); p[12] = cyl_bessel_i0(v); double s, c; sincospi(v, &s, &c); p[13] = s + 3 * c;
    p[14] = rhypot(v, 2.) + fmod(v, 1.5) + remainder(v, 1.5) + lgamma(v) + fma(v, v, 1.) + cbrt(v); p[15] = erf(erfinv(0.3)) + erfc(erfcinv(1e-20)) * 1e20;
}
__global__ void exact(double* o) {
    o[0] = sinpif(1.f); o[1] = cospif(0.5f); o[2] = sinpi(1e15 + 1); o[3] = cospi(3.); o[4] = sinpif(0.5f); o[5] = sinpi(-2.5);
    o[6] = erfinvf(1.f); o[7] = erfcinv(2.); o[8] = norm3df(3e38f, 0.f, 0.f); o[9] = norm4d(1e300, 1e300, 0., 0.); o[10] = rsqrtf(0.f); o[11] = erfcx(1e10);
    o[12] = __saturatef(NAN); o[13] = fmaxf(NAN, 2.f); o[14] = fminf(3.f, NAN); o[15] = max(NAN, 1.f);
}
struct alignas(16) Pack { __half2 h[4]; };
__global__ void halves(const float* x, const float* y, const float* z, unsigned short* o, float2* f) {
    int i = threadIdx.x;
    unsigned short* p = o + 32 * i;
    __half a = __float2half(x[i]), b = __float2half_rn(y[i]), c = __float2half(z[i]);
    __half2 ab = __halves2half2(a, b), cc = __half2half2(c);
#define BITS(k, v) p[k] = __half_as_ushort(v)
    BITS(0, __hadd(a, b)); BITS(1, __hsub(a, b)); BITS(2, __hmul(a, b)); BITS(3, __hdiv(a, b)); BITS(4, __hfma(a, b, c));
    BITS(5, __hmax(a, b)); BITS(6, __hmin(a, b)); BITS(7, hexp(a)); BITS(8, hrsqrt(a)); BITS(9, __low2half(h2exp(ab))); BITS(10, __high2half(__hfma2(ab, cc, ab)));
    BITS(11, __hadd_sat(a, b)); BITS(12, __hfma_relu(a, b, c)); BITS(13, __hneg(a)); BITS(14, __habs(a)); BITS(15, hfloor(a)); BITS(16, hlog(a)); BITS(17, htanh(a));
    BITS(18, __float2half_rz(x[i])); BITS(19, __float2half_ru(x[i])); BITS(20, __float2half_rd(x[i])); BITS(21, __double2half((double)x[i] + 1e-12)); BITS(22, __int2half_rn(i * 131));
    BITS(23, __low2half(__floats2half2_rn(x[i], y[i]))); BITS(24, __hmul_rn(a, b)); BITS(25, a + b * c); p[26] = __heq(a, a) + 2 * __hlt(a, b) + 4 * __hgeu(a, b) + 8 * __hbeq2(ab, ab) + 16 * __hne(a, b);
    BITS(27, __low2half(__hmax2(ab, cc))); p[28] = (unsigned short)(__hle2_mask(ab, cc) >> 8); BITS(29, __high2half(__lowhigh2highlow(ab))); BITS(30, __hmax_nan(a, __ushort_as_half(0x7fff))); BITS(31, __low2half(__h2div(ab, cc)));
    f[2 * i] = __half22float2(ab);
    Pack pack = {{ab, cc, ab, cc}};
    uint4 raw = *reinterpret_cast<uint4*>(&pack);
    f[2 * i + 1] = make_float2(__low2float(*reinterpret_cast<__half2*>(&raw.y)), __high2float(*reinterpret_cast<__half2*>(&raw.z)));
}
__global__ void bfloats(const float* x, const float* y, const float* z, unsigned short* o) {
    int i = threadIdx.x;
    unsigned short* p = o + 16 * i;
    __nv_bfloat16 a = __float2bfloat16(x[i]), b = __float2bfloat16_rn(y[i]), c = __float2bfloat16(z[i]);
    __nv_bfloat162 ab = __floats2bfloat162_rn(x[i], y[i]);
#define BITSB(k, v) p[k] = __bfloat16_as_ushort(v)
    BITSB(0, __hadd(a, b)); BITSB(1, __hmul(a, b)); BITSB(2, __hfma(a, b, c)); BITSB(3, __float2bfloat16_rz(x[i])); BITSB(4, __float2bfloat16_ru(x[i])); BITSB(5, __low2bfloat16(__hfma2(ab, ab, ab)));
    BITSB(6, hexp(a)); BITSB(7, __high2bfloat16(ab)); BITSB(8, __int2bfloat16_rn(i * 65537)); BITSB(9, __hmax(a, b)); BITSB(10, __double2bfloat16((double)x[i])); p[11] = __bfloat162int_rn(a); p[12] = __bfloat162short_rz(a);
    BITSB(13, __low2bfloat16(__float2bfloat162_rn(x[i]))); p[14] = (unsigned short)(100 * __low2float(ab)); p[15] = __hgt(a, b);
}
__global__ void memory(const float4* x, float4* y, const int* a, unsigned long long* big, __half2* h, __nv_bfloat162* bf, double* d, float2* f2, long long* wide, unsigned* u, unsigned short* us) {
    int i = threadIdx.x;
    float4 v = __ldg(x + i), w = __ldcg(&x[i]);
    w.x += __ldcs(&a[i]) + __ldca(&a[i]) + __ldlu(&a[i]) + __ldcv(&a[i]);
    if (i & 1) __stcg(&y[i], v); else __stcs(&y[i], w);
    __stwb(&y[64 + i], v); __stwt(&y[128 + i], w);
    __threadfence(); __threadfence_block(); __threadfence_system();
    __builtin_assume(i >= 0); __builtin_assume(i < 64);
    if (__builtin_expect(i > 63, 0)) __trap();
    atomicAdd(big, 1ull << 33); atomicAdd(h, __floats2half2_rn(1.f, 2.f)); atomicAdd(bf, __floats2bfloat162_rn(1.f, -1.f)); atomicAdd(d, 0.5); atomicAdd(f2, make_float2(1.f, 0.25f));
    atomicMin(wide, (long long)-i); atomicMax(wide + 1, (long long)i << 40); atomicMax(big + 1, ~0ull - i);
    atomicInc(u, 9u); atomicDec(u + 1, 9u); atomicCAS(us, (unsigned short)i, (unsigned short)(i + 1)); atomicAnd(u + 2, ~(1u << (i & 31))); atomicXor(u + 3, 1u << (i & 31)); atomicAdd((__half*)(us + 2), __float2half(1.f));
    if (__isGlobal(x) && clock64() != 0 && clock() != -1) atomicAdd_block(u + 4, 1u);
}
static double brain_value(int b) {
    const unsigned u = (unsigned)b << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static float half_value(unsigned short b) { return __half2float(__ushort_as_half(b)); }
// The nearest of all finite halves, ties to even, found by looking; direction 0, 1, -1 as in rounding.cu.
static unsigned short nearest(double v, int way, bool brain) {
    auto value = [&](int b) { return brain ? brain_value(b) : (double)half_value((unsigned short)b); };
    const unsigned short sign = std::signbit(v) ? 0x8000 : 0;
    const double a = fabs(v);
    const int top = brain ? 0x7f80 : 0x7c00;
    int lo = 0, hi = top;
    while (hi - lo > 1) { int mid = (lo + hi) / 2; (value(mid) <= a ? lo : hi) = mid; }
    if (value(lo) == a) return (unsigned short)(lo | sign);
    const double upper = hi == top ? (brain ? ldexp(1., 128) : 65536.) : value(hi), half = (value(lo) + upper) / 2;
    int r = way == 0 ? lo : way == 2 ? (a > half || (a == half && lo & 1) ? hi : lo) : (way > 0) != (sign != 0) ? hi : lo;
    return (unsigned short)(r | sign);
}

static unsigned long long state = 88172645463325252ull;
static unsigned bits() {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return (unsigned)(state >> 16);
}

int main() {
    static unsigned a[256], b[256], o[256 * 64];
    for (int i = 0; i < 256; ++i) { a[i] = bits() >> bits() % 24; b[i] = bits(); }
    a[0] = 0; a[1] = ~0u; b[1] = ~0u; a[2] = b[2] = 0x80008080u; a[3] = 0x80000000u;
    words<<<1, 256>>>(a, b, o);
    for (int i = 0; i < 256; ++i) {
        const unsigned x = a[i], y = b[i], *p = o + 64 * i, s = y & 31, z = y & 63;
        int ones = 0, zeros = 32, first = 0;
        unsigned turned = 0;
        for (int k = 0; k < 32; ++k) { ones += x >> k & 1; if (x >> k & 1) { zeros = 31 - k; if (!first) first = k + 1; turned |= 1u << (31 - k); } }
        const unsigned long long yx = (unsigned long long)y << 32 | x;
        const L sx = (int)x, sy = (int)y;
        const unsigned left = (unsigned)(yx << s >> 32), right = (unsigned)(yx >> s);
        const unsigned want[] = {(unsigned)ones, (unsigned)zeros, (unsigned)first, turned, (unsigned)(sx * sy >> 32), (unsigned)((unsigned long long)x * y >> 32),
            (unsigned)((L)((int)(x << 8) >> 8) * ((int)(y << 8) >> 8)), (unsigned)((unsigned long long)(x & 0xffffff) * (y & 0xffffff)), (unsigned)((sx > sy ? sx - sy : sy - sx) + 5),
            (x > y ? x - y : y - x) + 5, (unsigned)((sx + sy) >> 1), (unsigned)((sx + sy + 1) >> 1), (unsigned)(((L)x + y) >> 1), (unsigned)(((L)x + y + 1) >> 1), left, right,
            z >= 32 ? x : left, z >= 32 ? y : right};
        for (int k = 0; k < 18; ++k) CHECK(i * 100 + k, p[k], want[k]);
        // 0x7351: byte 1 of x, byte 1 of y, byte 3 of x, byte 3 of y, from the lowest.
        CHECK(i, p[18], (x >> 8 & 255) | (y >> 8 & 255) << 8 | (x >> 24) << 16 | (y >> 24) << 24);
        int sd = 7; unsigned ud = 7, lo = 7, hi = 7;
        for (int k = 0; k < 4; ++k) { sd += (signed char)(x >> 8 * k) * (signed char)(y >> 8 * k); ud += (x >> 8 * k & 255) * (y >> 8 * k & 255); }
        for (int k = 0; k < 2; ++k) { lo += (int)(short)(x >> 16 * k) * (signed char)(y >> 8 * k); hi += (x >> 16 * k & 65535) * (y >> (16 + 8 * k) & 255); }
        CHECK(i, p[19], (unsigned)sd); CHECK(i, p[20], ud); CHECK(i, p[21], lo); CHECK(i, p[22], hi);
        CHECK(i, p[23], each(x, y, 8, [](L u, L v) { return u + v; }, false));
        CHECK(i, p[24], each(x, y, 16, [](L u, L v) { return u + v; }, false));
        CHECK(i, p[25], each(x, y, 8, [](L u, L v) { return clip(u + v, -128, 127); }, true));
        CHECK(i, p[26], each(x, y, 16, [](L u, L v) { return clip(u + v, 0, 65535); }, false));
        CHECK(i, p[27], each(x, y, 8, [](L u, L v) { return u - v; }, false));
        CHECK(i, p[28], each(x, y, 8, [](L u, L v) { return clip(u - v, 0, 255); }, false));
        CHECK(i, p[29], each(x, y, 8, [](L u, L v) { return u > v ? u : v; }, true));
        CHECK(i, p[30], each(x, y, 16, [](L u, L v) { return u < v ? u : v; }, false));
        CHECK(i, p[31], each(x, y, 8, [](L u, L) { return u < 0 ? -u : u; }, true));
        CHECK(i, p[32], each(x, y, 8, [](L u, L v) { return u > v ? u - v : v - u; }, false));
        CHECK(i, p[33], each(x, (y & 0xff00ff00u) | (x & 0x00ff00ffu), 8, [](L u, L v) { return u == v ? 255ll : 0; }, false));
        CHECK(i, p[34], each(x, y, 16, [](L u, L v) { return u > v ? 65535ll : 0; }, true));
        CHECK(i, p[35], each(x, y, 8, [](L u, L v) { return (L)(u < v); }, false));
        CHECK(i, p[36], each(x, y, 8, [](L u, L v) { return (u + v + 1) / 2; }, false));
        unsigned sad = 0;
        for (int k = 0; k < 32; k += 8) sad += abs((int)(x >> k & 255) - (int)(y >> k & 255));
        CHECK(i, p[37], sad);
        CHECK(i, p[38], each(x, y, 16, [](L u, L) { return -u; }, true));
        CHECK(i, p[39], each(x, y, 16, [](L u, L v) { return clip(u - v, -32768, 32767); }, true));
        CHECK(i, p[40], (unsigned)(ones + __builtin_popcount(y)));
        CHECK(i, p[41], (unsigned)(y ? 32 + __builtin_clz(y) : 64));
        CHECK(i, p[42], (unsigned)(first ? first + 20 : 0));
        unsigned yturned = 0;
        for (int k = 0; k < 32; ++k) yturned |= (y >> k & 1) << (31 - k);
        CHECK(i, p[43], yturned);
        CHECK(i, p[44], (unsigned)((__int128)((L)x << 31 | y) * -((L)y << 29) >> 64));
        CHECK(i, p[45], (unsigned)((unsigned __int128)((unsigned long long)x << 32) * ((unsigned long long)y << 32 | x) >> 64));
        CHECK(i, p[46], x); CHECK(i, p[47], y); CHECK(i, p[48], x & 0xff7fffffu);
        CHECK(i, p[49], (unsigned)(int)(sx > sy ? (sx > 3 ? sx : 3) : (sy > 3 ? sy : 3)));
        CHECK(i, p[50], x + y < 77 ? x + y : 77u);
        CHECK(i, p[51], (x < y ? x : y) ^ (x > 9 ? x : 9u) ^ x);
        unsigned third = ~0u; int seen = 0;
        for (int k = 0; k < 32 && third == ~0u; ++k) if (x >> k & 1 && ++seen == 3) third = k;
        CHECK(i, p[52], third);
    }
    static float x[512], y[512], z[512];
    static double xd[64], p[64 * 40];
    for (int i = 0; i < 64; ++i) xd[i] = x[i] = 0.07f + i * 0.29f;
    singles<<<1, 64>>>(x, p);
    for (int i = 0; i < 64; ++i) {
        const double v = x[i], *q = p + 40 * i, pi = M_PI, e = 4e-6;
        const double s = sin(pi * v), c = cos(pi * v);
        NEAR(i, q[0], 1 / sqrt(v), e); NEAR(i, q[1], 1 / cbrt(v), e); NEAR(i, q[2], sqrt(v * v + 13), e); NEAR(i, q[3], sqrt(v * v + 14), e); NEAR(i, q[4], sqrt(v * v + 4), e);
        NEAR(i, q[5], 1 / sqrt(v * v + 4), e); NEAR(i, q[6] + 2, s + 2, e); NEAR(i, q[7] + 2, c + 2, e);
        if (v < 20) NEAR(i, q[8], exp(v * v) * erfc(v), 2e-5);
        const double w = (float)(x[i] / 20.f);
        NEAR(i, erf(q[9]), w, e); NEAR(i, q[10], 0.5 * erfc(-v / sqrt(2)), e); NEAR(i, q[11] + 3, lgamma(v) + 3, e); NEAR(i, q[12] + 2, j0(v) + 2, e); NEAR(i, q[13] + 20, y1(v) + 20, e);
        NEAR(i, q[14], v / 3, e); NEAR(i, q[15], v / 3, e); NEAR(i, q[16], pow(10, v), 1e-5); NEAR(i, q[17], pow(10, v), 3e-5); NEAR(i, q[18], v * 8, 0); NEAR(i, q[19], v / 4, 0);
        NEAR(i, q[20], (double)std::nextafter(x[i], 100.f), 0); NEAR(i, q[21], fmod(v, 1.5), 0); NEAR(i, q[22], remainder(v, 1.5), 0);
        NEAR(i, q[23], remainder(v, 1.5) + 100 * ((long)rint(v / 1.5) & 7), e);
        int ex; const double m = frexp(v, &ex); NEAR(i, q[24], m + ex, e); NEAR(i, q[25], v - floor(v) + 10 * floor(v), e); NEAR(i, q[26], v > 1 ? 1 : v, 0);
        const double t = (float)(x[i] / 10.f);
        NEAR(i, erfc(q[27]), t, 1e-5); NEAR(i, 0.5 * erfc(-q[28] / sqrt(2)), w, 1e-5);
        double i0 = 0, i1 = 0, term = 1;
        for (int k = 0; k < 80; ++k) { i0 += term; i1 += term * (v / 2) / (k + 1); term *= (v / 2) * (v / 2) / ((k + 1) * (k + 1)); }
        NEAR(i, q[29], i0, e); NEAR(i, q[30], i1, e); NEAR(i, q[31], pow(v, 1.5), 2e-5); NEAR(i, q[32], cbrt(v), e); NEAR(i, q[33], tgamma(v), e); NEAR(i, q[34], 2 * logb(v), 0);
        NEAR(i, q[35] + 9, s + 3 * c + 9, e); NEAR(i, q[36] + 9, sin(v) + 3 * cos(v) + 9, e); NEAR(i, q[37] + 9, sin(v) + 3 * cos(v) + 9, e);
        NEAR(i, q[38], (v > 1 ? v - 1 : 0) - 2 + trunc(v) + 3 * rint(v) + floor(v) + ceil(v) + round(v) + 1, e);
        NEAR(i, q[39] + 200, 1 / sqrt(v * v + 2) + 1 / sqrt(v) + v * v + 1 + expm1(v) + log1p(v) + atan2(v, 2) + asinh(v) + acosh((float)(x[i] + 1.f)) + atanh((float)(x[i] / 10.f)) + tan(v) + 200, 2e-5);
    }
    doubles<<<1, 64>>>(xd, p);
    for (int i = 0; i < 64; ++i) {
        const double v = xd[i], *q = p + 16 * i, e = 1e-14;
        NEAR(i, q[0], 1 / sqrt(v), e); NEAR(i, q[1], 1 / cbrt(v), e); NEAR(i, q[2], sqrt(v * v + 13), e); NEAR(i, q[3] + 2, sin(M_PI * v) + 2, e); NEAR(i, q[4] + 2, cos(M_PI * v) + 2, e);
        if (v < 5) NEAR(i, q[5], exp(v * v) * erfc(v), 1e-13);
        else NEAR(i, q[5], (1 - 0.5 / v / v + 0.75 / pow(v, 4) - 1.875 / pow(v, 6) + 6.5625 / pow(v, 8)) / v / sqrt(M_PI), 60 / pow(v, 10));
        NEAR(i, erf(q[6]), v / 20, e); NEAR(i, q[7], 0.5 * erfc(-v / sqrt(2)), 1e-13); NEAR(i, q[8], pow(10, v), 1e-13); NEAR(i, 0.5 * erfc(-q[9] / sqrt(2)), v / 20, 1e-13);
        NEAR(i, erfc(q[10]), v / 10, 1e-13); NEAR(i, q[11], j1(v), 1e-13); NEAR(i, q[13] + 9, sin(M_PI * v) + 3 * cos(M_PI * v) + 9, e);
        NEAR(i, q[14] + 9, 1 / sqrt(v * v + 4) + fmod(v, 1.5) + remainder(v, 1.5) + lgamma(v) + v * v + 1 + cbrt(v) + 9, e); NEAR(i, q[15], 1.3, 1e-13);
    }
    exact<<<1, 1>>>(p);
    const double wanted[] = {0, 0, 0, -1, 1, -1, INFINITY, -INFINITY, 3e38f, sqrt(2.) * 1e300, INFINITY, 1e-10 / sqrt(M_PI), 0, 2, 3, 1};
    for (int i = 0; i < 16; ++i) NEAR(i, p[i], wanted[i], 1e-15);

    static unsigned short h[512 * 32];
    static float2 f[1024];
    for (int i = 0; i < 512; ++i) {
        x[i] = ldexpf((float)(int)bits() / 2147483648.f, (int)(bits() % 24) - 12);
        y[i] = ldexpf((float)(int)bits() / 2147483648.f, (int)(bits() % 12) - 6);
        z[i] = i % 4 ? ldexpf((float)(int)bits() / 2147483648.f, (int)(bits() % 24) - 16) : 6e-8f;
    }
    x[0] = NAN; x[1] = INFINITY; x[2] = 1e6f; x[3] = 6e-8f; x[5] = 65519.f; x[6] = 65520.f;
    halves<<<1, 512>>>(x, y, z, h, f);
    for (int i = 1; i < 512; ++i) {
        const unsigned short* q = h + 32 * i;
        const double A = half_value(nearest(x[i], 2, false)), B = half_value(nearest(y[i], 2, false)), C = half_value(nearest(z[i], 2, false));
        if (i == 1) continue;
#define SAME(k, v) CHECK(i * 100 + k, q[k] & ((q[k] & 0x7fff) ? 0xffff : 0x7fff), nearest(v, 2, false) & ((nearest(v, 2, false) & 0x7fff) ? 0xffff : 0x7fff))
        if (std::isfinite(A)) {
            SAME(0, A + B); SAME(1, A - B); SAME(2, A * B); SAME(3, A / B); SAME(4, (double)((__float128)A * B + C)); SAME(5, A > B ? A : B); SAME(6, A < B ? A : B);
            SAME(10, half_value(nearest(B * C + B, 2, false))); SAME(11, A + B > 1 ? 1. : A + B > 0 ? A + B : 0.); SAME(13, -A); SAME(14, fabs(A)); SAME(15, floor(A)); SAME(24, A * B);
            SAME(25, A + half_value(nearest(B * C, 2, false)));
            NEAR(i, half_value(q[7]), half_value(nearest(exp(A), 2, false)), 1e-3); NEAR(i, half_value(q[9]), half_value(nearest(exp(A), 2, false)), 1e-3); NEAR(i, half_value(q[17]), tanh(A), 1e-3);
            if (A > 0) { NEAR(i, half_value(q[8]), 1 / sqrt(A), 1e-3); NEAR(i, half_value(q[16]) + 20, log(A) + 20, 3e-3); }
            CHECK(i, q[26], 1 + 2 * (A < B) + 4 * (A >= B) + 8 + 16 * (A != B));
            SAME(27, A > C ? A : C); CHECK(i, q[28], (unsigned short)((A <= C ? 0xff : 0) | (B <= C ? 0xff00 : 0))); SAME(29, A); CHECK(i, q[30], 0x7fff); SAME(31, A / C);
            CHECK(i, f[2 * i].x, (float)A); CHECK(i, f[2 * i].y, (float)B); CHECK(i, f[2 * i + 1].x, (float)C); CHECK(i, f[2 * i + 1].y, (float)B);
        }
        CHECK(i, q[18], nearest(x[i], 0, false)); CHECK(i, q[19], nearest(x[i], 1, false)); CHECK(i, q[20], nearest(x[i], -1, false)); CHECK(i, q[21], nearest((double)x[i] + 1e-12, 2, false));
        CHECK(i, q[22], nearest(i * 131, 2, false)); CHECK(i, q[23], nearest(x[i], 2, false));
    }
    CHECK(0, h[26], 4);  // not-a-number is not equal, and not ordered
    bfloats<<<1, 512>>>(x, y, z, h);
    for (int i = 2; i < 512; ++i) {
        const unsigned short* q = h + 16 * i;
        auto value = [](unsigned short b) { return brain_value(b); };
        const double A = value(nearest(x[i], 2, true)), B = value(nearest(y[i], 2, true)), C = value(nearest(z[i], 2, true));
        CHECK(i, q[0], nearest(A + B, 2, true)); CHECK(i, q[1], nearest(A * B, 2, true)); CHECK(i, q[2], nearest((double)((__float128)A * B + C), 2, true)); CHECK(i, q[3], nearest(x[i], 0, true)); CHECK(i, q[4], nearest(x[i], 1, true));
        CHECK(i, q[5], nearest(A * A + A, 2, true)); if (fabs(A) < 80) NEAR(i, value(q[6]), exp(A), 1e-2); CHECK(i, q[7], nearest(y[i], 2, true)); CHECK(i, q[8], nearest(i * 65537, 2, true)); CHECK(i, q[9], nearest(A > B ? A : B, 2, true));
        CHECK(i, q[10], nearest(x[i], 2, true)); CHECK(i, q[11], (unsigned short)(int)nearbyint(A)); CHECK(i, q[12], (unsigned short)(short)(A > 32767 ? 32767 : A < -32768 ? -32768 : A)); CHECK(i, q[13], nearest(x[i], 2, true)); CHECK(i, q[15], A > B);
    }
    static float4 v4[64], w4[192];
    static int ints[64];
    unsigned long long big[2] = {5, 0};
    __half2 h2 = __floats2half2_rn(0.f, 0.f);
    __nv_bfloat162 b2 = __floats2bfloat162_rn(0.f, 0.f);
    double d = 0;
    float2 f2 = {0, 0};
    long long wide[2] = {9, 0};
    unsigned u[5] = {0, 3, ~0u, 0, 0};
    alignas(8) unsigned short us[4] = {0, 0, 0, 0};
    for (int i = 0; i < 64; ++i) { v4[i] = make_float4(i, i + 1, i + 2, i + 3); ints[i] = i; }
    memory<<<1, 64>>>(v4, w4, ints, big, &h2, &b2, &d, &f2, wide, u, us);
    for (int i = 0; i < 64; ++i) { CHECK(i, w4[i].x, i & 1 ? i : 5.f * i); CHECK(i, w4[64 + i].y, i + 1.f); CHECK(i, w4[128 + i].x, 5.f * i); }
    CHECK(0, big[0], 5 + (64ull << 33)); CHECK(0, big[1], ~0ull); CHECK(0, __low2float(h2), 64.f); CHECK(0, __high2float(h2), 128.f); CHECK(0, __low2float(b2), 64.f); CHECK(0, __high2float(b2), -64.f);
    CHECK(0, d, 32.); CHECK(0, f2.x, 64.f); CHECK(0, f2.y, 16.f); CHECK(0, wide[0], -63); CHECK(0, wide[1], 63ll << 40); CHECK(0, u[0], 4u); CHECK(0, u[1], 9u); CHECK(0, u[2], 0u); CHECK(0, u[3], 0u); CHECK(0, u[4], 64u);
    CHECK(0, us[0], 64); CHECK(0, us[2], __half_as_ushort(__float2half(64.f))); CHECK(0, us[1], 0); CHECK(0, us[3], 0);
    return failures != 0;
}
