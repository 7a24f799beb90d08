// Numbers that do not fit an integer become the nearest that there is. Not-a-number becomes 0, and of a
// double or to 64 bits the highest bit alone, as the PTX manual says.
#include <climits>
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>
#include "check.cuh"

static const double kValues[] = {0.0, -0.5, 0.5, 1.5, 2.5, -2.5, 300.7, -300.7, 65535.9, 70000.25, 2147483520.0, 2147483647.0,
    2147483648.0, -2147483648.0, -2147483904.0, 4294967040.0, 4294967296.0, 1e10, -1e10, 9.2e18, 9.3e18, -9.3e18, 1.8e19,
    1.9e19, 1e30, -1e30, INFINITY, -INFINITY, NAN};
const int kCount = sizeof(kValues) / sizeof(double);

// The documented rule, in arithmetic that cannot overflow.
template <class I> static I saturated(double x, bool from_double = false) {
    if (x != x) return from_double || sizeof(I) == 8 ? (I)(1ull << (8 * sizeof(I) - 1)) : 0;
    const long double v = truncl(x);
    if (v >= (long double)std::numeric_limits<I>::max()) return std::numeric_limits<I>::max();
    if (v <= (long double)std::numeric_limits<I>::min()) return std::numeric_limits<I>::min();
    return (I)v;
}

#define TO_INT(x) ((int)((x) * 1.0f))

template <class T, class F> __device__ void generic(const F* x, T* o, int i) { o[i] = static_cast<T>(x[i]); }

template <class F> __global__ void casts(const F* x, int* a, unsigned* b, long long* c, unsigned long long* d, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    a[i * 8] = (int)x[i];
    a[i * 8 + 1] = static_cast<int>(x[i]);
    a[i * 8 + 2] = int(x[i]);
    int declared = x[i] * (F)1.f;
    const int32_t copied = x[i];
    a[i * 8 + 3] = declared;
    a[i * 8 + 4] = copied;
    a[i * 8 + 5] = (short)x[i];
    a[i * 8 + 6] = (signed char)x[i] + 1000 * (uint8_t)x[i];
    generic<int>(x, &a[7 + 7 * i], i);
    b[i * 2] = (unsigned)x[i];
    b[i * 2 + 1] = static_cast<unsigned int>(x[i] / (F)1);
    c[i * 2] = (long long)x[i];
    c[i * 2 + 1] = -(int64_t)(float)(double)x[i];
    d[i * 2] = (unsigned long long)x[i];
    d[i * 2 + 1] = size_t(x[i]) + (uint64_t)x[i] * 0;
}
__global__ void macros(const float* x, int* a, int n) {
    const int i = (int)(blockIdx.x * blockDim.x) + (int)threadIdx.x;
    if ((int)(i * 1e9f) < n) a[i] = TO_INT(x[i]) - (int)-x[i] + (x[i] > (int)x[i]);
}
__global__ void inside(int* a, float n, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if ((int)(i * scale) < (int)n) a[i] = 1;
}
__global__ void intrinsics(const float* x, const double* y, long long* o) {
    int i = threadIdx.x;
    long long* p = o + i * 24;
    p[0] = __float2int_rn(x[i]); p[1] = __float2int_rz(x[i]); p[2] = __float2int_rd(x[i]); p[3] = __float2int_ru(x[i]);
    p[4] = __float2uint_rn(x[i]); p[5] = __float2uint_rz(x[i]); p[6] = __float2uint_rd(x[i]); p[7] = __float2uint_ru(x[i]);
    p[8] = __float2ll_rn(x[i]); p[9] = __float2ll_rz(x[i]); p[10] = __float2ll_rd(x[i]); p[11] = __float2ll_ru(x[i]);
    p[12] = __float2ull_rn(x[i]); p[13] = __float2ull_rz(x[i]);
    p[14] = __double2int_rn(y[i]); p[15] = __double2int_rz(y[i]); p[16] = __double2int_rd(y[i]); p[17] = __double2int_ru(y[i]);
    p[18] = __double2uint_rn(y[i]); p[19] = __double2uint_rz(y[i]);
    p[20] = __double2ll_rn(y[i]); p[21] = __double2ll_rz(y[i]); p[22] = __double2ull_rz(y[i]); p[23] = __double2ull_ru(y[i]);
}
__global__ void halves(const float* x, int* o) {
    int i = threadIdx.x;
    __half h = __float2half(x[i]);
    o[i * 6] = (int)h;
    o[i * 6 + 1] = __half2int_rz(h);
    o[i * 6 + 2] = __half2short_rz(h);
    o[i * 6 + 3] = (int)__half2uint_rz(h);
    o[i * 6 + 4] = __half2int_rn(h);
    o[i * 6 + 5] = static_cast<unsigned char>(__half2float(h)) + 1000 * (unsigned char)h;
}
__global__ void shapes(const float* x, int* o) {
    // Things that look like conversions, and ones with long operands.
    int i = threadIdx.x;
    auto f = [](int) { return 2; };
    int (*p)(int) = +[](int v) { return v + 1; };
    const size_t bytes = sizeof(int) + sizeof (float);
    int many = (int)x[i] + f(1) * p(2), more = (int)fabsf(x[i]) / 3;
    unsigned char byte = (unsigned char)(many & 255);
    o[i] = (int)bytes + many + more + byte + (int)(float)(int)x[i] + !(int)x[i] + (int)*(x + i) + (int)(x[i] > 0 ? 1.5f : 0.f);
    constexpr int size = (int)2.5f + static_cast<int>(3.9);
    int array[size] = {(int)x[0]};
    o[i] += array[0] * size + max((int)x[i], 2);
}

template <class F> static void check_casts() {
    static F x[64];
    static int a[1024];
    static unsigned b[128];
    static long long c[128];
    static unsigned long long d[128];
    for (int i = 0; i < kCount; ++i) x[i] = (F)kValues[i];
    casts<F><<<1, 64>>>(x, a, b, c, d, kCount);
    const bool wide = sizeof(F) == 8;
    for (int i = 0; i < kCount; ++i) {
        for (int k = 0; k < 5; ++k) CHECK(i, a[i * 8 + k], saturated<int>(x[i], wide));
        CHECK(i, a[i * 8 + 5], (short)saturated<int>(x[i], wide));
        CHECK(i, a[i * 8 + 6], (signed char)saturated<int>(x[i], wide) + 1000 * (uint8_t)saturated<unsigned>(x[i], wide));
        CHECK(i, a[i * 8 + 7], saturated<int>(x[i], wide));
        CHECK(i, b[i * 2], saturated<unsigned>(x[i], wide));
        CHECK(i, b[i * 2 + 1], saturated<unsigned>(x[i], wide));
        CHECK(i, c[i * 2], saturated<long long>(x[i]));
        CHECK(i, c[i * 2 + 1], (long long)(0ull - (unsigned long long)saturated<long long>((float)x[i])));
        CHECK(i, d[i * 2], saturated<unsigned long long>(x[i]));
        CHECK(i, d[i * 2 + 1], saturated<unsigned long long>(x[i]));
    }
}

int main() {
    check_casts<float>();
    check_casts<double>();
    static float x[64];
    static int a[512];
    for (int i = 0; i < kCount; ++i) x[i] = (float)kValues[i];
    memset(a, 77, sizeof a);
    macros<<<2, 32>>>(x, a, 2000000001);
    for (int i = 0; i < kCount; ++i) {
        const int want = (int)((unsigned)saturated<int>(x[i]) - (unsigned)saturated<int>(-x[i]) + (x[i] > (float)saturated<int>(x[i])));
        CHECK(i, a[i], i <= 2 ? want : 0x4d4d4d4d);
    }
    memset(a, 0, sizeof a);
    inside<<<2, 128>>>(a, 1e9f, 1e8f);
    for (int i = 0; i < 256; ++i) CHECK(i, a[i], i < 10);
    static double y[64];
    static long long o[64 * 24];
    for (int i = 0; i < kCount; ++i) y[i] = kValues[i];
    intrinsics<<<1, kCount>>>(x, y, o);
    for (int i = 0; i < kCount; ++i) {
        const long long* p = o + i * 24;
        const double f = x[i], g = y[i];
        double (*round[])(double) = {nearbyint, trunc, floor, ceil};
        for (int k = 0; k < 4; ++k) {
            CHECK(i, p[k], saturated<int>(round[k](f)));
            CHECK(i, p[4 + k], saturated<unsigned>(round[k](f)));
            CHECK(i, p[8 + k], saturated<long long>(round[k](f)));
            CHECK(i, p[14 + k], saturated<int>(round[k](g), true));
        }
        CHECK(i, p[12], (long long)saturated<unsigned long long>(nearbyint(f)));
        CHECK(i, p[13], (long long)saturated<unsigned long long>(f));
        CHECK(i, p[18], saturated<unsigned>(nearbyint(g), true));
        CHECK(i, p[19], saturated<unsigned>(g, true));
        CHECK(i, p[20], saturated<long long>(nearbyint(g)));
        CHECK(i, p[21], saturated<long long>(g));
        CHECK(i, p[22], (long long)saturated<unsigned long long>(g));
        CHECK(i, p[23], (long long)saturated<unsigned long long>(ceil(g)));
    }
    halves<<<1, kCount>>>(x, a);
    for (int i = 0; i < kCount; ++i) {
        const double h = (float)__float2half(x[i]);
        CHECK(i, a[i * 6], saturated<int>(h));
        CHECK(i, a[i * 6 + 1], saturated<int>(h));
        CHECK(i, a[i * 6 + 2], saturated<short>(h));
        CHECK(i, (unsigned)a[i * 6 + 3], saturated<unsigned>(h));
        CHECK(i, a[i * 6 + 4], saturated<int>(nearbyint(h)));
        CHECK(i, a[i * 6 + 5], (unsigned char)saturated<unsigned>(h) + 1000 * saturated<unsigned char>(h));
    }
    for (int i = 0; i < 8; ++i) x[i] = i * 1.25f - 2;
    shapes<<<1, 8>>>(x, a);
    for (int i = 0; i < 8; ++i) {
        int many = (int)x[i] + 6, more = (int)fabsf(x[i]) / 3;
        int want = 8 + many + more + (many & 255) + (int)x[i] + ((int)x[i] == 0) + (int)x[i] + (x[i] > 0);
        want += (int)x[0] * 5 + ((int)x[i] > 2 ? (int)x[i] : 2);
        CHECK(i, a[i], want);
    }
    return failures != 0;
}
