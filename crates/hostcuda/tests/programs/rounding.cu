// Arithmetic that says how it rounds is rounded so, alone, also where the compiler could fuse it.
#include <cmath>
#include "check.cuh"

typedef __float128 Exact;

template <class T> static T rounded(Exact v, int direction) {
    T r = (T)v;
    if (direction == 2) return r;
    if ((Exact)r > v && (direction < 0 || (direction == 0 && v > 0))) r = std::nextafter(r, -(T)INFINITY);
    else if ((Exact)r < v && (direction > 0 || (direction == 0 && v < 0))) r = std::nextafter(r, (T)INFINITY);
    return r;
}

// Products and sums that would be fused.
__global__ void unfused(const float* a, const float* b, const float* c, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    o[i] = __fadd_rn(__fmul_rn(a[i], b[i]), c[i]);
    o[n + i] = __fsub_rn(a[i] * b[i], c[i]);
    o[2 * n + i] = __fmul_rn(a[i], b[i]) - c[i];
    o[3 * n + i] = __fmaf_rn(a[i], b[i], c[i]);
    o[4 * n + i] = __fmul_rn(a[i], b[i]) + __fmul_rn(b[i], c[i]);
}
__global__ void unfused_double(const double* a, const double* b, const double* c, double* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    o[i] = __dadd_rn(__dmul_rn(a[i], b[i]), c[i]);
    o[n + i] = __dsub_rn(c[i], a[i] * b[i]);
    o[2 * n + i] = __fma_rn(a[i], b[i], c[i]);
    o[3 * n + i] = __dmul_rn(a[i], b[i]) - c[i];
}
// Exact sums and products of two floats as pairs, and a dot product in them.
__device__ float2 two_sum(float a, float b) {
    float s = __fadd_rn(a, b), t = __fsub_rn(s, a);
    return make_float2(s, __fadd_rn(__fsub_rn(a, __fsub_rn(s, t)), __fsub_rn(b, t)));
}
__device__ float2 two_product(float a, float b) {
    float p = __fmul_rn(a, b);
    return make_float2(p, __fmaf_rn(a, b, -p));
}
__global__ void pairs(const float* a, const float* b, float2* o, double* dot, int n) {
    int i = threadIdx.x;
    o[2 * i] = two_sum(a[i], b[i]);
    o[2 * i + 1] = two_product(a[i], b[i]);
    if (i == 0) {
        float2 s = make_float2(0.f, 0.f);
        for (int k = 0; k < n; ++k) {
            float2 p = two_product(a[k], b[k]), t = two_sum(s.x, p.x);
            float low = __fadd_rn(t.y, __fadd_rn(s.y, p.y));
            s.x = __fadd_rn(t.x, low);
            s.y = __fsub_rn(low, __fsub_rn(s.x, t.x));
        }
        *dot = (double)s.x + s.y;
    }
}
__global__ void kahan(const float* x, float* o, int n) {
    float sum = 0.f, c = 0.f;
    for (int i = 0; i < n; ++i) {
        float y = x[i] - c, t = sum + y;
        c = (t - sum) - y;
        sum = t;
    }
    *o = sum;
}
#define ALL(T, p, fma)                                                                                     \
    __device__ void operations_##p(const T* a, const T* b, const T* c, T* o, int i) {                      \
        T* q = o + 32 * i;                                                                                 \
        q[0] = __##p##add_rz(a[i], b[i]); q[1] = __##p##add_ru(a[i], b[i]); q[2] = __##p##add_rd(a[i], b[i]); \
        q[3] = __##p##sub_rz(a[i], b[i]); q[4] = __##p##sub_ru(a[i], b[i]); q[5] = __##p##sub_rd(a[i], b[i]); \
        q[6] = __##p##mul_rz(a[i], b[i]); q[7] = __##p##mul_ru(a[i], b[i]); q[8] = __##p##mul_rd(a[i], b[i]); \
        q[9] = __##p##div_rz(a[i], b[i]); q[10] = __##p##div_ru(a[i], b[i]); q[11] = __##p##div_rd(a[i], b[i]); \
        q[12] = __##p##rcp_rz(b[i]); q[13] = __##p##rcp_ru(b[i]); q[14] = __##p##rcp_rd(b[i]);             \
        q[15] = fma##_rz(a[i], b[i], c[i]); q[16] = fma##_ru(a[i], b[i], c[i]); q[17] = fma##_rd(a[i], b[i], c[i]); \
        q[18] = __##p##sqrt_rz(fabs(a[i])); q[19] = __##p##sqrt_ru(fabs(a[i])); q[20] = __##p##sqrt_rd(fabs(a[i])); \
        q[21] = __##p##div_rn(a[i], b[i]); q[22] = __##p##rcp_rn(b[i]); q[23] = __##p##sqrt_rn(fabs(a[i])); \
    }
ALL(float, f, __fmaf)
ALL(double, d, __fma)
__global__ void directed_f(const float* a, const float* b, const float* c, float* o) { operations_f(a, b, c, o, threadIdx.x); }
__global__ void directed_d(const double* a, const double* b, const double* c, double* o) { operations_d(a, b, c, o, threadIdx.x); }
__global__ void narrowing(const double* a, const long long* b, float* o, double* d) {
    int i = threadIdx.x;
    float* q = o + 16 * i;
    q[0] = __double2float_rz(a[i]); q[1] = __double2float_ru(a[i]); q[2] = __double2float_rd(a[i]); q[3] = __double2float_rn(a[i]);
    q[4] = __ll2float_rz(b[i]); q[5] = __ll2float_ru(b[i]); q[6] = __ll2float_rd(b[i]); q[7] = __ll2float_rn(b[i]);
    q[8] = __int2float_rz((int)b[i]); q[9] = __int2float_ru((int)b[i]); q[10] = __int2float_rd((int)b[i]); q[11] = __int2float_rn((int)b[i]);
    d[2 * i] = __ll2double_ru(b[i]); d[2 * i + 1] = __ll2double_rd(b[i]);
}

static unsigned long long state = 88172645463325252ull;
static unsigned long long random_bits() {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state;
}
template <class T> static T random_number() {
    T m = (T)(long long)random_bits() / (T)9.3e18;
    return std::ldexp(m, (int)(random_bits() % 20) - 10);
}
template <class T, class K> static void check_directed(K kernel) {
    const int n = 512;
    static T a[n], b[n], c[n], o[n * 32];
    for (int i = 0; i < n; ++i) { a[i] = random_number<T>(); b[i] = random_number<T>(); c[i] = random_number<T>() / 64; }
    c[7] = -a[7] * b[7];
    kernel(a, b, c, o, n);
    const int way[] = {0, 1, -1};
    for (int i = 0; i < n; ++i) {
        const T* q = o + 32 * i;
        const Exact x = a[i], y = b[i], z = c[i];
        for (int k = 0; k < 3; ++k) {
            CHECK(i, q[k], rounded<T>(x + y, way[k]));
            CHECK(i, q[3 + k], rounded<T>(x - y, way[k]));
            CHECK(i, q[6 + k], rounded<T>(x * y, way[k]));
            CHECK(i, q[9 + k], rounded<T>(x / y, way[k]));
            CHECK(i, q[12 + k], rounded<T>(1 / y, way[k]));
            // The last bits of a quotient or a triple sum may lie beyond what a quad holds.
            if (sizeof(T) == 4) CHECK(i, q[15 + k], rounded<T>(x * y + z, way[k]));
        }
        const Exact root = x < 0 ? -x : x;
        CHECK(i, (Exact)q[18] * q[18] <= root && (Exact)std::nextafter(q[18], (T)INFINITY) * std::nextafter(q[18], (T)INFINITY) > root, true);
        CHECK(i, (Exact)q[19] * q[19] >= root && (Exact)std::nextafter(q[19], (T)0) * std::nextafter(q[19], (T)0) < root, true);
        CHECK(i, q[20], q[18]);
        CHECK(i, q[16] >= q[17] && q[16] <= std::nextafter(q[17], (T)INFINITY), true);
        CHECK(i, q[21], rounded<T>(x / y, 2));
        CHECK(i, q[22], rounded<T>(1 / y, 2));
        CHECK(i, q[23] == q[18] || q[23] == q[19], true);
    }
}

int main() {
    const int n = 1024;
    static float a[n], b[n], c[n], o[n * 32];
    static double x[n], y[n], z[n], p[n * 4];
    for (int i = 0; i < n; ++i) {
        a[i] = random_number<float>(); b[i] = random_number<float>(); c[i] = i % 3 ? random_number<float>() : -a[i] * b[i];
        x[i] = random_number<double>(); y[i] = random_number<double>(); z[i] = i % 3 ? random_number<double>() : -x[i] * y[i];
    }
    unfused<<<5, 256>>>(a, b, c, o, n);
    unfused_double<<<5, 256>>>(x, y, z, p, n);
    for (int i = 0; i < n; ++i) {
        volatile float ab = a[i] * b[i], bc = b[i] * c[i];
        CHECK(i, o[i], ab + c[i]);
        CHECK(i, o[n + i], ab - c[i]);
        CHECK(i, o[2 * n + i], ab - c[i]);
        CHECK(i, o[3 * n + i], (float)((Exact)a[i] * b[i] + c[i]));
        CHECK(i, o[4 * n + i], ab + bc);
        volatile double xy = x[i] * y[i];
        CHECK(i, p[i], xy + z[i]);
        CHECK(i, p[n + i], z[i] - xy);
        CHECK(i, p[2 * n + i], (double)((Exact)x[i] * y[i] + z[i]));
        CHECK(i, p[3 * n + i], xy - z[i]);
    }
    static float2 pair[2 * n];
    double dot = 0;
    pairs<<<1, n>>>(a, b, pair, &dot, n);
    Exact exact = 0;
    for (int i = 0; i < n; ++i) {
        CHECK(i, (Exact)pair[2 * i].x + pair[2 * i].y == (Exact)a[i] + b[i], true);
        CHECK(i, (Exact)pair[2 * i + 1].x + pair[2 * i + 1].y == (Exact)a[i] * b[i], true);
        exact += (Exact)a[i] * b[i];
    }
    CHECK(0, fabs(dot - (double)exact) <= 1e-10 * fabs((double)exact) + 1e-7, true);
    float sum = 0;
    double real = 0;
    for (int i = 0; i < n; ++i) { c[i] = 1e-4f + i; real += c[i]; }
    kahan<<<1, 1>>>(c, &sum, n);
    CHECK(0, sum, (float)real);
    check_directed<float>([](const float* a, const float* b, const float* c, float* o, int n) { directed_f<<<1, n>>>(a, b, c, o); });
    check_directed<double>([](const double* a, const double* b, const double* c, double* o, int n) { directed_d<<<1, n>>>(a, b, c, o); });
    static long long l[64];
    for (int i = 0; i < 64; ++i) { l[i] = (long long)(random_bits() >> i % 40); x[i] = random_number<double>(); }
    narrowing<<<1, 64>>>(x, l, o, p);
    for (int i = 0; i < 64; ++i) {
        const int way[] = {0, 1, -1, 2};
        for (int k = 0; k < 4; ++k) {
            CHECK(i, o[16 * i + k], rounded<float>(x[i], way[k]));
            CHECK(i, o[16 * i + 4 + k], rounded<float>(l[i], way[k]));
            CHECK(i, o[16 * i + 8 + k], rounded<float>((int)l[i], way[k]));
        }
        CHECK(i, p[2 * i], rounded<double>(l[i], 1));
        CHECK(i, p[2 * i + 1], rounded<double>(l[i], -1));
    }
    return failures != 0;
}
