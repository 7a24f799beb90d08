// Indices are unsigned: bounds by wrap-around, hashes, widening, deduction, loops up and down.
#include <cstdint>
#include <type_traits>
#include "check.cuh"

#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
typedef unsigned long long u64;

template <class T> __device__ int deduced(T) { return std::is_unsigned<T>::value; }

__global__ void direct(int* o, int n) { o[threadIdx.x] = threadIdx.x - 1 < n; }
__global__ void interior(int* o, int n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i - 1 < n) o[i - 1] = (int)i;
}
__global__ void window(int* o, int n, int lo) {
    const unsigned int i = THREAD - lo;
    if (i >= n) return;
    o[i] += 1;
}
__global__ void hashes(unsigned* o) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = i * 2654435761u;
    int signed_hash = (blockIdx.x * blockDim.x + threadIdx.x) * 1103515245 + 12345;
    o[4 * i] = (h >> 16) % 1000 + (i * i * i * i * 77777 >> 3);
    o[4 * i + 1] = blockIdx.x * 0x9E3779B9 + threadIdx.x * 0x85EBCA6B;
    o[4 * i + 2] = signed_hash >> 7;
    o[4 * i + 3] = (i * 40503 ^ i >> 3) % 61 - (threadIdx.x * threadIdx.x << 20) / 3;
}
__global__ void widened(long long* o) {
    int i = threadIdx.x;
    o[i * 8] = (long long)(threadIdx.x - 1);
    o[i * 8 + 1] = (size_t)(threadIdx.x * 0x1000001);
    o[i * 8 + 2] = -threadIdx.x;
    o[i * 8 + 3] = ~threadIdx.x;
    o[i * 8 + 4] = threadIdx.x > -1;
    o[i * 8 + 5] = deduced(threadIdx.x) + 2 * deduced(blockDim.y) + 4 * deduced(threadIdx.x + 1);
    o[i * 8 + 6] = std::is_unsigned<std::decay_t<decltype(threadIdx.x)>>::value;
    o[i * 8 + 7] = static_cast<int64_t>(threadIdx.x - blockDim.x) + (int64_t)(int)(threadIdx.x - 7);
}
__global__ void automatic(long long* o, int n) {
    auto i = threadIdx.x;
    auto k = i - 5;
    o[i] = k;
    o[n + threadIdx.x] = min(i, 3) + (i - 3 > 0) + (true ? threadIdx.x - 2 : -1);
    if (i > 0) o[2 * n + threadIdx.x - 1] = max(threadIdx.x - 1, 5u);
    o[3 * n + i] = (float)(threadIdx.x - 1) > 0.f;
    long long j = threadIdx.x - 2;
    o[4 * n + i] = j;
    size_t wide = blockIdx.x * blockDim.x + threadIdx.x - 1;
    o[5 * n + i] = wide;
    int half = (threadIdx.x - 3) / 2;
    o[6 * n + i] = half;
}
// The guarded element before: its subscript is only right where it does not wrap.
__global__ void before(int* o, const int* x, size_t row) {
    if (threadIdx.x > 0) o[row * 64 + (threadIdx.x - 1)] = x[row * 64 + (threadIdx.x - 1)];
    int back = threadIdx.x - 1;
    if (back >= 0) o[64 + back] = x[back];
}
// Two variables of one name; a lambda that names what it captures; a pointer that moves.
__global__ void scopes(int* o, const int* x) {
    { unsigned i = threadIdx.x; o[i] = x[i]; }
    for (int i = 0; i < 2; ++i) o[64 + i] = i;
    unsigned k = threadIdx.x + blockDim.x * blockIdx.x;
    auto at = [k](const int* p) { return p[k]; };
    o[128 + k] = at(x);
    unsigned moved = threadIdx.x;
    moved ^= 1;
    o[192 + moved] = x[moved];
}
__global__ void up_from_before(int* o, unsigned n, int off) {
    for (int i = threadIdx.x + off; i < n; i += blockDim.x) o[i] = i;
}
__global__ void up_by(int* o, int n, int lo) {
    for (unsigned i = threadIdx.x; i - lo < n; i += blockDim.x) o[i] = 1;
}
__global__ void up_unsigned(int* o, int n) {
    for (uint32_t i = THREAD; i < n; i += gridDim.x * blockDim.x) o[i] += i * 3;
}
__global__ void up_size(int* o, size_t n) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) o[i] += i * 5;
}
__global__ void up_long(int* o, long long n) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) o[i] += i * 7;
}
__global__ void up_auto(int* o, int n) {
    for (auto i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) o[i] += i * 11;
}
__global__ void down(int* o, unsigned n) {
    for (unsigned i = n - 1 - threadIdx.x; i < n; i -= blockDim.x) o[i] = i * 3;
}
__global__ void down_arrow(int* o, unsigned n) {
    for (unsigned i = n / blockDim.x; i-- > 0;) o[i * blockDim.x + threadIdx.x] = i + threadIdx.x;
}
__global__ void volume(int* o, unsigned w, unsigned h, unsigned d) {
    const unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= w || y >= h || z >= d) return;
    int around = 0;
    for (int dx = -1; dx <= 1; ++dx)
        if (x + dx < w && y - 1 < h && z + dx < d) around += 1;
    o[(z * h + y) * w + x] = around * 1000 + x + 10 * y + 100 * z;
}
__global__ void pointers(int* o, const int* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const int* from = x + blockIdx.x;
    if (i < n) *(o + i) = *(x + i) + __ldg(from + threadIdx.x - blockIdx.x % 1);
}

int main() {
    static int o[8192], x[8192];
    static unsigned u[8192];
    static long long l[8192];
    for (int i = 0; i < 8192; ++i) x[i] = i * 37 % 1009;
    direct<<<1, 64>>>(o, 10);
    for (unsigned i = 0; i < 64; ++i) CHECK(i, o[i], i - 1u < 10u);
    memset(o, 0, sizeof o);
    interior<<<4, 64>>>(o, 100);
    for (int i = 0; i < 256; ++i) CHECK(i, o[i], i < 100 ? i + 1 : 0);
    for (int lo : {0, 3, 63, 64, 100, 250}) {
        memset(o, 0, sizeof o);
        window<<<4, 64>>>(o, 100, lo);
        for (int i = 0; i < 256; ++i) CHECK(i, o[i], i < 100 && i + lo < 256);
    }
    hashes<<<4, 64>>>(u);
    for (unsigned i = 0; i < 256; ++i) {
        unsigned b = i / 64, t = i % 64;
        CHECK(i, u[4 * i], (i * 2654435761u >> 16) % 1000 + (i * i * i * i * 77777u >> 3));
        CHECK(i, u[4 * i + 1], b * 0x9E3779B9u + t * 0x85EBCA6Bu);
        CHECK(i, u[4 * i + 2], (int)(i * 1103515245u + 12345u) >> 7);
        CHECK(i, u[4 * i + 3], (i * 40503u ^ i >> 3) % 61 - (t * t << 20) / 3);
    }
    widened<<<1, 64>>>(l);
    for (unsigned i = 0; i < 64; ++i) {
        CHECK(i, l[i * 8], i - 1u);
        CHECK(i, l[i * 8 + 1], i * 0x1000001u);
        CHECK(i, l[i * 8 + 2], 0u - i);
        CHECK(i, l[i * 8 + 3], ~i);
        CHECK(i, l[i * 8 + 4], 0);
        CHECK(i, l[i * 8 + 5], 7);
        CHECK(i, l[i * 8 + 6], 1);
        CHECK(i, l[i * 8 + 7], (long long)(i - 64u) + (int)(i - 7u));
    }
    automatic<<<1, 64>>>(l, 64);
    for (unsigned i = 0; i < 64; ++i) {
        CHECK(i, l[i], i - 5u);
        CHECK(i, l[64 + i], (i < 3 ? i : 3) + (i - 3u > 0) + (i - 2u));
        if (i) CHECK(i, l[128 + i - 1], i - 1 > 5 ? i - 1 : 5);
        CHECK(i, l[192 + i], i != 1);
        CHECK(i, l[256 + i], i - 2u);
        CHECK(i, l[320 + i], i - 1u);
        CHECK(i, l[384 + i], (int)((i - 3u) / 2));
    }
    memset(o, 0, sizeof o);
    before<<<1, 64>>>(o, x, 2);
    for (int i = 0; i < 63; ++i) { CHECK(i, o[128 + i], x[128 + i]); CHECK(i, o[64 + i], x[i]); }
    memset(o, 0, sizeof o);
    scopes<<<1, 64>>>(o, x);
    for (int i = 0; i < 64; ++i) {
        CHECK(i, o[i], x[i]);
        CHECK(i, o[128 + i], x[i]);
        CHECK(i, o[192 + i], x[i]);
    }
    memset(o, 0, sizeof o);
    up_from_before<<<1, 64>>>(o, 1000, -3);
    for (int i = 0; i < 1000; ++i) CHECK(i, o[i], i % 64 < 61 ? i : 0);
    memset(o, 0, sizeof o);
    up_by<<<1, 64>>>(o, 200, 10);
    for (int i = 0; i < 256; ++i) CHECK(i, o[i], i % 64 >= 10 && i < 210);
    memset(o, 0, sizeof o);
    up_unsigned<<<3, 32>>>(o, 1000);
    up_size<<<3, 32>>>(o, 1000);
    up_long<<<3, 32>>>(o, 1000);
    up_auto<<<3, 32>>>(o, 1000);
    for (int i = 0; i < 1100; ++i) CHECK(i, o[i], i < 1000 ? i * 26 : 0);
    down<<<1, 64>>>(o, 1000);
    for (int i = 0; i < 1000; ++i) CHECK(i, o[i], i * 3);
    down_arrow<<<1, 64>>>(o, 640);
    for (int i = 0; i < 640; ++i) CHECK(i, o[i], i / 64 + i % 64);
    volume<<<dim3(2, 2, 2), dim3(8, 4, 2)>>>(o, 11, 7, 3);
    for (unsigned z = 0; z < 3; ++z)
        for (unsigned y = 0; y < 7; ++y)
            for (unsigned c = 0; c < 11; ++c) {
                int around = 0;
                for (int dx = -1; dx <= 1; ++dx) around += c + dx < 11u && y - 1 < 7u && z + dx < 3u;
                CHECK(c, o[(z * 7 + y) * 11 + c], around * 1000 + (int)(c + 10 * y + 100 * z));
            }
    pointers<<<4, 64>>>(o, x, 250);
    for (int i = 0; i < 250; ++i) CHECK(i, o[i], x[i] + x[i / 64 + i % 64]);
    return failures != 0;
}
