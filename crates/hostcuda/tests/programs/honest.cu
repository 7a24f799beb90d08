// Kernels as people write them, each with the result that a GPU gives, in plain C++.
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>
#include "check.cuh"

// 1, 2: a random number generator by index (PCG), and Philox with its key schedule.
__host__ __device__ inline uint32_t pcg(uint32_t v) {
    uint32_t state = v * 747796405u + 2891336453u;
    uint32_t word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (word >> 22u) ^ word;
}
__global__ void random_pcg(float* o, int n, uint32_t seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = (pcg(i ^ seed) >> 8) * (1.0f / 16777216.0f);
}
__global__ void random_philox(uint4* o, uint2 key) {
    uint4 c = make_uint4(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.x, threadIdx.x - 1, ~threadIdx.x);
    for (int r = 0; r < 10; ++r) {
        uint32_t h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x, h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ key.x, l1, h0 ^ c.w ^ key.y, l0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    o[blockIdx.x * blockDim.x + threadIdx.x] = c;
}
// 3: dropout by a hash of row and column.
__global__ void dropout(const float* x, float* y, unsigned rows, unsigned cols, unsigned seed, float keep) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * cols; i += gridDim.x * blockDim.x) {
        unsigned r = i / cols, c = i % cols, h = r * 0x9E3779B1u ^ c * 0x85EBCA77u ^ seed;
        h ^= h >> 15; h *= 0x2C1B3C6Du; h ^= h >> 12;
        y[i] = (float)(h >> 8) * (1.f / (1 << 24)) < keep ? x[i] / keep : 0.f;
    }
}
// 4: a stencil whose bounds are checked by wrapping. 5: a convolution in two dimensions so.
__global__ void stencil(const float* x, float* y, int n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = 0.f;
    for (int d = -2; d <= 2; ++d)
        if (i + d < n) s += x[i + d] * (3 - abs(d));
    y[i] = s;
}
__global__ void convolve(const float* x, const float* w, float* y, int width, int height) {
    const unsigned c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c < width && r < height) {
        float s = 0.f;
#pragma unroll
        for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j) {
                unsigned rr = r + i - 1, cc = c + j - 1;
                if (rr < (unsigned)height && cc < (unsigned)width) s += w[i * 3 + j] * x[rr * width + cc];
            }
        y[r * width + c] = s;
    }
}
// 6: reversal by an unsigned countdown. 7: suffix sums of a thread, from the end.
__global__ void reversed(const int* x, int* y, unsigned n) {
    for (unsigned i = n - blockIdx.x * blockDim.x - threadIdx.x - 1; i < n; i -= gridDim.x * blockDim.x) y[n - 1 - i] = x[i];
}
__global__ void suffix(const int* x, int* y, unsigned cols) {
    int sum = 0;
    for (unsigned c = cols; c-- > 0;) y[threadIdx.x * cols + c] = sum += x[threadIdx.x * cols + c];
}
// 8: transposition with padding, in tiles and rows of a block.
__global__ void transpose(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[32][33];
    unsigned c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (unsigned j = 0; j < 32; j += blockDim.y)
        if (c < cols && r + j < rows) tile[threadIdx.y + j][threadIdx.x] = x[(size_t)(r + j) * cols + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x;
    r = blockIdx.x * 32 + threadIdx.y;
    for (unsigned j = 0; j < 32; j += blockDim.y)
        if (c < rows && r + j < cols) y[(size_t)(r + j) * rows + c] = tile[threadIdx.x][threadIdx.y + j];
}
// 9: softmax in one pass. 10: mean and variance by Welford, combined over a warp.
__global__ void online_softmax(const float* x, float* y, int n) {
    const float* row = x + (size_t)blockIdx.x * n;
    float m = -INFINITY, s = 0.f;
    for (int i = threadIdx.x; i < n; i += 32) {
        float v = row[i], top = fmaxf(m, v);
        s = s * __expf(m - top) + __expf(v - top);
        m = top;
    }
    for (int o = 16; o > 0; o >>= 1) {
        float m2 = __shfl_xor_sync(0xffffffff, m, o), s2 = __shfl_xor_sync(0xffffffff, s, o), top = fmaxf(m, m2);
        s = s * __expf(m - top) + s2 * __expf(m2 - top);
        m = top;
    }
    for (int i = threadIdx.x; i < n; i += 32) y[(size_t)blockIdx.x * n + i] = __expf(row[i] - m) / s;
}
__global__ void welford(const float* x, float2* o, int n) {
    float mean = 0.f, m2 = 0.f, count = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        count += 1.f;
        float d = x[blockIdx.x * n + i] - mean;
        mean += d / count;
        m2 += d * (x[blockIdx.x * n + i] - mean);
    }
    for (int k = 16; k > 0; k /= 2) {
        float mb = __shfl_down_sync(~0u, mean, k), sb = __shfl_down_sync(~0u, m2, k), cb = __shfl_down_sync(~0u, count, k), c = count + cb, d = mb - mean;
        if (c > 0.f) { mean += d * cb / c; m2 += sb + d * d * count * cb / c; count = c; }
    }
    if (threadIdx.x == 0) o[blockIdx.x] = make_float2(mean, m2 / count);
}
// 11: prefix sums of a block by warps, threads that have left being nobody's neighbours. 12: one pass
// of a radix sort. 13: a histogram in shared memory.
__global__ void scan(const int* x, int* y, int n) {
    __shared__ int sums[32];
    int i = threadIdx.x, lane = i & 31, warp = i >> 5, v = i < n ? x[i] : 0;
    for (int d = 1; d < 32; d <<= 1) { int u = __shfl_up_sync(~0u, v, d); if (lane >= d) v += u; }
    if (lane == 31) sums[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int s = lane < blockDim.x / 32 ? sums[lane] : 0;
        for (int d = 1; d < 32; d *= 2) { int u = __shfl_up_sync(~0u, s, d); s += lane >= d ? u : 0; }
        sums[lane] = s;
    }
    __syncthreads();
    if (i < n) y[i] = v + (warp > 0 ? sums[warp - 1] : 0);
}
__global__ void radix(const unsigned* x, unsigned* y, int shift, int n) {
    __shared__ unsigned counts[16], starts[16];
    if (threadIdx.x < 16) counts[threadIdx.x] = 0;
    __syncthreads();
    const unsigned key = threadIdx.x < n ? x[threadIdx.x] >> shift & 15u : 16u, lane = threadIdx.x & 31;
    unsigned rank = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) {
        if (threadIdx.x / 32 == w && key < 16) {
            unsigned peers = __match_any_sync(__activemask(), key), before = counts[key];
            rank = before + __popc(peers & ((1u << lane) - 1));
            __syncwarp(__activemask());
            if (lane == 31 - __clz((int)peers)) counts[key] = before + __popc(peers);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) { unsigned s = 0; for (int k = 0; k < 16; ++k) { starts[k] = s; s += counts[k]; } }
    __syncthreads();
    if (threadIdx.x < n) y[starts[key] + rank] = x[threadIdx.x];
}
__global__ void histogram(const unsigned char* x, unsigned* o, size_t n) {
    __shared__ unsigned bins[256];
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
    __syncthreads();
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) atomicAdd(&bins[x[i]], 1u);
    __syncthreads();
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) if (bins[b]) atomicAdd(o + b, bins[b]);
}
// 14: a maximum of floats by compare and swap. 15: the same by integers that keep the order.
__global__ void maximum(const float* x, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int* address = (int*)o;
    int old = *address, assumed;
    do {
        assumed = old;
        old = atomicCAS(address, assumed, __float_as_int(fmaxf(x[i], __int_as_float(assumed))));
    } while (assumed != old);
}
__device__ unsigned ordered(float v) { unsigned b = __float_as_uint(v); return b & 0x80000000u ? ~b : b | 0x80000000u; }
__global__ void argmax(const float* x, unsigned long long* o, unsigned n) {
    for (unsigned i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x)
        atomicMax(o, (unsigned long long)ordered(x[i]) << 32 | (0xffffffffu - i));
}
// 16: bits through a union and by reinterpretation. 17: halves packed in a word of four.
union Bits { float f; uint32_t u; struct { uint32_t mantissa : 23, exponent : 8, sign : 1; } p; };
__global__ void bits(const float* x, int* o, int n) {
    int i = threadIdx.x + blockDim.x * blockIdx.x;
    if (i >= n) return;
    Bits b;
    b.f = x[i];
    o[i] = (int)b.p.exponent - 127 + (b.u >> 31 ? 1000 : 0) + (reinterpret_cast<const unsigned&>(x[i]) & 1);
}
__global__ void packed(const uint4* x, uint4* y, int n8) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n8) {
        uint4 v = x[i];
        __half2* h = reinterpret_cast<__half2*>(&v);
#pragma unroll
        for (int k = 0; k < 4; ++k) h[k] = __hfma2(h[k], __float2half2_rn(2.f), __half2half2(__float2half(0.5f)));
        y[i] = v;
    }
}
// 18: quantisation to 8 bits, with what does not fit. 19: the same with packing.
__global__ void quantise(const float* x, int8_t* y, uint8_t* z, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int q = __float2int_rn(x[i] * scale);
    y[i] = static_cast<int8_t>(max(-128, min(127, q)));
    z[i] = (uint8_t)fminf(fmaxf(rintf(x[i] * scale) + 128.f, 0.f), 255.f);
}
__global__ void dequantise(const uint32_t* x, float* y, int n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n * 8; i += blockDim.x * gridDim.x) {
        int nibble = (x[i >> 3] >> ((i & 7) * 4)) & 0xF;
        y[i] = (nibble - 8) * 0.25f;
    }
}
// 20: Morton order. 21: a Gray code. 22: a division by multiplying with a magic number.
__device__ unsigned spread(unsigned v) { v = (v | v << 8) & 0x00ff00ff; v = (v | v << 4) & 0x0f0f0f0f; v = (v | v << 2) & 0x33333333; return (v | v << 1) & 0x55555555; }
__global__ void morton(unsigned* o) { o[spread(threadIdx.x) | spread(threadIdx.y) << 1] = threadIdx.y * blockDim.x + threadIdx.x; }
__global__ void gray(unsigned* o, unsigned* magic) {
    auto i = blockIdx.x * blockDim.x + threadIdx.x;
    o[i ^ i >> 1] = i;
    magic[i] = __umulhi(i * 977u, 0xAAAAAAABu) >> 1;
}
// 23: a matrix product with tails. 24: the dot product of a double-float. 25: threads that leave early.
__global__ void product(const float* a, const float* b, float* c, unsigned m, unsigned n, unsigned k) {
    __shared__ float A[16][17], B[16][17];
    const unsigned row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float s = 0.f;
    for (unsigned t = 0; t < (k + 15) / 16; ++t) {
        A[threadIdx.y][threadIdx.x] = row < m && t * 16 + threadIdx.x < k ? a[row * k + t * 16 + threadIdx.x] : 0.f;
        B[threadIdx.y][threadIdx.x] = col < n && t * 16 + threadIdx.y < k ? b[(t * 16 + threadIdx.y) * n + col] : 0.f;
        __syncthreads();
        for (int j = 0; j < 16; ++j) s += A[threadIdx.y][j] * B[j][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = s;
}
__global__ void accumulate(const float* x, float2* o, int n) {
    float hi = 0.f, lo = 0.f;
    for (int i = 0; i < n; ++i) {
        float s = __fadd_rn(hi, x[i]), b = __fsub_rn(s, hi);
        lo = __fadd_rn(lo, __fadd_rn(__fsub_rn(hi, __fsub_rn(s, b)), __fsub_rn(x[i], b)));
        hi = s;
    }
    *o = make_float2(hi, lo);
}
__global__ void leavers(const int* x, int* o, int n) {
    __shared__ int part[4];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x >= blockDim.x - 7u) return;
    int v = i < n ? x[i] : 0;
    part[threadIdx.x & 3] = 0;
    __syncthreads();
    atomicAdd(&part[threadIdx.x & 3], v);
    if (threadIdx.x - 64 < 20) return;
    __syncthreads();
    if (threadIdx.x < 4) o[blockIdx.x * 4 + threadIdx.x] = part[threadIdx.x];
}

int main() {
    const int n = 1000;
    static float x[8192], y[8192], z[8192];
    static int a[8192], b[8192];
    static unsigned u[8192], v[8192];
    for (int i = 0; i < 8192; ++i) { x[i] = ((int)(pcg(i) >> 8) - (1 << 23)) / 1048576.f; a[i] = pcg(i + 9) % 1000; u[i] = pcg(i * 3); }
    random_pcg<<<4, 256>>>(y, n, 77);
    for (unsigned i = 0; i < n; ++i) CHECK(i, y[i], (pcg(i ^ 77u) >> 8) * (1.0f / 16777216.0f));
    static uint4 q[128];
    random_philox<<<2, 64>>>(q, make_uint2(5, 6));
    for (unsigned i = 0; i < 128; ++i) {
        unsigned c[4] = {i, i / 64, i % 64 - 1, ~(i % 64)}, k0 = 5, k1 = 6;
        for (int r = 0; r < 10; ++r) {
            uint64_t p = (uint64_t)0xD2511F53u * c[0], s = (uint64_t)0xCD9E8D57u * c[2];
            unsigned d[4] = {(unsigned)(s >> 32) ^ c[1] ^ k0, (unsigned)s, (unsigned)(p >> 32) ^ c[3] ^ k1, (unsigned)p};
            memcpy(c, d, 16); k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
        }
        CHECK(i, memcmp(c, &q[i], 16), 0);
    }
    dropout<<<3, 128>>>(x, y, 25, 40, 99, 0.75f);
    for (unsigned i = 0; i < n; ++i) {
        unsigned h = i / 40 * 0x9E3779B1u ^ i % 40 * 0x85EBCA77u ^ 99; h ^= h >> 15; h *= 0x2C1B3C6Du; h ^= h >> 12;
        CHECK(i, y[i], (float)(h >> 8) * (1.f / (1 << 24)) < 0.75f ? x[i] / 0.75f : 0.f);
    }
    for (int i = 0; i < 8192; ++i) z[i] = i % 101;
    stencil<<<8, 128>>>(z, y, n);
    for (int i = 0; i < n; ++i) {
        float s = 0;
        for (int d = -2; d <= 2; ++d) if (i + d >= 0 && i + d < n) s += z[i + d] * (3 - abs(d));
        CHECK(i, y[i], s);
    }
    const float w[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    convolve<<<dim3(2, 4), dim3(32, 8)>>>(z, w, y, 37, 27);
    for (int r = 0; r < 27; ++r)
        for (int c = 0; c < 37; ++c) {
            float s = 0;
            for (int i = -1; i <= 1; ++i) for (int j = -1; j <= 1; ++j)
                if (r + i >= 0 && r + i < 27 && c + j >= 0 && c + j < 37) s += w[(i + 1) * 3 + j + 1] * z[(r + i) * 37 + c + j];
            CHECK(r * 37 + c, y[r * 37 + c], s);
        }
    reversed<<<3, 64>>>(a, b, n);
    for (int i = 0; i < n; ++i) CHECK(i, b[i], a[n - 1 - i]);
    suffix<<<1, 20>>>(a, b, 50);
    for (int r = 0; r < 20; ++r) for (int c = 49, s = 0; c >= 0; --c) CHECK(c, b[r * 50 + c], s += a[r * 50 + c]);
    transpose<<<dim3(3, 2), dim3(32, 8)>>>(x, y, 45, 70);
    for (int r = 0; r < 45; ++r) for (int c = 0; c < 70; ++c) CHECK(r, y[c * 45 + r], x[r * 70 + c]);
    online_softmax<<<4, 32>>>(x, y, 250);
    static float2 f[8];
    welford<<<4, 32>>>(x, f, 250);
    for (int r = 0; r < 4; ++r) {
        double m = -1e30, s = 0, mean = 0, var = 0;
        for (int i = 0; i < 250; ++i) { m = fmax(m, (double)x[r * 250 + i]); mean += x[r * 250 + i] / 250.; }
        for (int i = 0; i < 250; ++i) { s += exp(x[r * 250 + i] - m); var += (x[r * 250 + i] - mean) * (x[r * 250 + i] - mean) / 250; }
        for (int i = 0; i < 250; ++i) CHECK(i, fabs(y[r * 250 + i] - exp(x[r * 250 + i] - m) / s) < 1e-6, true);
        CHECK(r, fabs(f[r].x - mean) < 1e-5 && fabs(f[r].y - var) < 1e-4, true);
    }
    scan<<<1, 512>>>(a, b, 500);
    for (int i = 0, s = 0; i < 500; ++i) CHECK(i, b[i], s += a[i]);
    for (int shift : {0, 4, 28}) {
        radix<<<1, 256>>>(u, v, shift, 250);
        int at = 0;
        for (unsigned k = 0; k < 16; ++k) for (int i = 0; i < 250; ++i) if ((u[i] >> shift & 15) == k) { CHECK(at, v[at], u[i]); ++at; }
    }
    unsigned bins[256] = {}, want[256] = {};
    histogram<<<3, 64>>>((unsigned char*)u, bins, 5000);
    for (int i = 0; i < 5000; ++i) ++want[((unsigned char*)u)[i]];
    for (int i = 0; i < 256; ++i) CHECK(i, bins[i], want[i]);
    float most = -INFINITY, top = -INFINITY;
    unsigned long long best = 0;
    int where = 0;
    maximum<<<8, 128>>>(x, &most, n);
    argmax<<<3, 64>>>(x, &best, n);
    for (int i = 0; i < n; ++i) if (x[i] > top) { top = x[i]; where = i; }
    CHECK(0, most, top); CHECK(0, 0xffffffffu - (unsigned)best, where);
    bits<<<8, 128>>>(x, b, n);
    for (int i = 0; i < n; ++i) {
        int e = 0; frexpf(x[i], &e); unsigned r; memcpy(&r, &x[i], 4);
        if (x[i] != 0) CHECK(i, b[i], e - 1 + (x[i] < 0 ? 1000 : 0) + (r & 1));
    }
    static __half h[1024], g[1024];
    for (int i = 0; i < 1024; ++i) h[i] = __float2half(x[i]);
    packed<<<2, 64>>>((uint4*)h, (uint4*)g, 128);
    for (int i = 0; i < 1024; ++i) CHECK(i, __half2float(g[i]), __half2float(__float2half(2.f * __half2float(h[i]) + 0.5f)));
    static int8_t small[1024];
    static uint8_t positive[1024];
    x[3] = 1e12f; x[4] = -1e12f; x[5] = NAN;
    quantise<<<8, 128>>>(x, small, positive, 37.f, n);
    for (int i = 0; i < n; ++i) {
        double r = nearbyint(x[i] * 37.f);
        CHECK(i, small[i], i == 5 ? 0 : r < -128 ? -128 : r > 127 ? 127 : (int)r);
        CHECK(i, positive[i], i == 5 ? 0 : r + 128 < 0 ? 0 : r + 128 > 255 ? 255 : (int)r + 128);
    }
    dequantise<<<2, 64>>>(u, y, 100);
    for (int i = 0; i < 800; ++i) CHECK(i, y[i], ((int)(u[i / 8] >> i % 8 * 4 & 15) - 8) * 0.25f);
    morton<<<1, dim3(16, 16)>>>(v);
    for (unsigned i = 0; i < 256; ++i) {
        unsigned r = 0, c = 0;
        for (int k = 0; k < 4; ++k) { c |= (i >> 2 * k & 1) << k; r |= (i >> (2 * k + 1) & 1) << k; }
        CHECK(i, v[i], r * 16 + c);
    }
    gray<<<4, 64>>>(v, u);
    for (unsigned i = 0; i < 256; ++i) { CHECK(i, v[i ^ i / 2], i); CHECK(i, u[i], i * 977 / 3); }
    product<<<dim3(3, 2), dim3(16, 16)>>>(z, z + 50, y, 29, 41, 35);
    for (int r = 0; r < 29; ++r) for (int c = 0; c < 41; ++c) {
        float s = 0;
        for (int k = 0; k < 35; ++k) s += z[r * 35 + k] * z[50 + k * 41 + c];
        CHECK(r * 41 + c, y[r * 41 + c], s);
    }
    double exact = 0;
    for (int i = 0; i < n; ++i) { z[i] = i % 2 ? 1e7f + i : 1e-3f * i; exact += z[i]; }
    accumulate<<<1, 1>>>(z, f, n);
    CHECK(0, fabs((double)f[0].x + f[0].y - exact) <= 1e-9 * exact, true);
    leavers<<<3, 128>>>(a, b, 300);
    for (int k = 0; k < 12; ++k) {
        int s = 0;
        for (int t = k % 4; t < 121; t += 4) s += k / 4 * 128 + t < 300 ? a[k / 4 * 128 + t] : 0;
        CHECK(k, b[k], s);
    }
    return failures != 0;
}
