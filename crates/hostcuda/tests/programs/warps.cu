// Parts of a warp: who is together, shuffles by partial masks and widths, votes, matches, reductions.
#include "check.cuh"

// One atomic operation for all lanes that are in a branch together.
__device__ int aggregated(int* counter) {
    const unsigned mask = __activemask(), lane = threadIdx.x & 31;
    const int leader = __ffs((int)mask) - 1;
    int first = 0;
    if ((int)lane == leader) first = atomicAdd(counter, __popc(mask));
    first = __shfl_sync(mask, first, leader);
    return first + __popc(mask & ((1u << lane) - 1));
}
__global__ void compact(const int* x, int* kept, int* counter, int* others, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (x[i] % 3 == 0) {
        kept[aggregated(counter)] = x[i];
    } else {
        unsigned mask = __activemask();
        others[i] = __popc(mask) * 100 + __popc(__ballot_sync(mask, x[i] & 1));
    }
    __syncwarp();
    atomicAdd(counter + 1, 1);
}
__global__ void lingering(const int* x, int* sums) {
    // Lanes leave a loop one after another.
    int turns = 0, together = 0;
    while (turns < x[threadIdx.x]) {
        together += __popc(__activemask());
        ++turns;
    }
    __syncthreads();
    sums[threadIdx.x] = together;
}
__global__ void masks(const int* x, int* o) {
    const int lane = threadIdx.x & 31, v = x[threadIdx.x];
    int* p = o + 16 * threadIdx.x;
    const unsigned even = 0x55555555u, odd = 0xaaaaaaaau, mine = lane & 1 ? odd : even;
    p[0] = __reduce_add_sync(mine, v);
    if (lane & 1) p[1] = __shfl_xor_sync(odd, v, 2) + (int)__reduce_max_sync(odd, (unsigned)v);
    else p[1] = __shfl_up_sync(even, v, 2) + __reduce_min_sync(even, v);
    __syncwarp(mine);
    p[2] = __shfl_sync(~0u, v, lane + 3, 8);
    p[3] = __shfl_down_sync(~0u, v, 3, 16);
    p[4] = __shfl_up_sync(~0u, v, 3, 8);
    p[5] = __shfl_xor_sync(~0u, v, 5, 8);
    p[6] = __shfl_xor_sync(~0u, v, 16, 16);
    int same = 7;
    p[7] = __match_all_sync(mine, v / 100, &same) == mine;
    p[8] = same;
    p[9] = __match_all_sync(mine, lane & 1, &same) == mine;
    p[10] = same;
    p[11] = (int)__match_any_sync(mine, v % 3);
    p[12] = __any_sync(mine, v == x[threadIdx.x & ~31]) + 2 * __all_sync(mine, v >= 0);
    if (lane < 20) p[13] = (int)__ballot_sync(0xfffffu, v & 1);
    double d = __shfl_sync(~0u, v * 0.5, 31 - lane);
    long long l = __shfl_down_sync(~0u, (long long)v << 33, 1);
    p[14] = (int)(d * 2) + (int)(l >> 33);
    p[15] = (int)__reduce_xor_sync(mine, (unsigned)v) + (int)__reduce_and_sync(mine, (unsigned)v | 1u);
}
// A warp that fetches while another computes.
__global__ void specialised(const float* x, float* y, int tiles) {
    __shared__ float tile[2][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = 0.f;
    if (warp == 0) tile[0][lane] = x[lane];
    __syncthreads();
    for (int t = 0; t < tiles; ++t) {
        if (warp == 0) {
            if (t + 1 < tiles) tile[(t + 1) & 1][lane] = x[(t + 1) * 32 + lane];
        } else {
            float v = tile[t & 1][lane];
            for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
            sum += v;
        }
        __syncthreads();
    }
    if (warp == 1) y[lane] = sum;
}

int main() {
    const int n = 1000;
    static int x[1024], kept[1024], others[1024], o[64 * 16];
    int counter[2] = {0, 0};
    for (int i = 0; i < 1024; ++i) x[i] = i * 7919 % 1009;
    compact<<<8, 128>>>(x, kept, counter, others, n);
    int count = 0, total = 0, got = 0;
    for (int i = 0; i < n; ++i) {
        if (x[i] % 3 == 0) { ++count; total += x[i]; }
        if (x[i] % 3 != 0) {
            int here = 0, ones = 0;
            for (int k = i & ~31; k < (i | 31) + 1 && k < n; ++k)
                if (x[k] % 3 != 0) { ++here; ones += x[k] & 1; }
            CHECK(i, others[i], here * 100 + ones);
        }
    }
    for (int i = 0; i < counter[0]; ++i) got += kept[i];
    CHECK(0, counter[0], count); CHECK(0, counter[1], n); CHECK(0, got, total);

    int turns[64], sums[64];
    for (int i = 0; i < 64; ++i) turns[i] = i % 5 + (i == 40) * 9;
    lingering<<<1, 64>>>(turns, sums);
    for (int i = 0; i < 64; ++i) {
        // At least itself in each turn, and at most everybody who takes as many.
        CHECK(i, sums[i] >= turns[i] && sums[i] <= 32 * turns[i], true);
    }
    masks<<<1, 64>>>(x, o);
    for (int i = 0; i < 64; ++i) {
        const int* p = o + 16 * i;
        const int base = i & ~31, lane = i & 31, *v = x + base;
        int sum = 0, most = 0, least = 1 << 30, any = 0, bits = 0;
        unsigned match = 0, exclusive = 0, all = ~0u;
        bool hundreds = true;
        for (int k = lane & 1; k < 32; k += 2) {
            sum += v[k]; most = max(most, v[k]); least = min(least, v[k]); any |= v[k] == v[0];
            if (v[k] % 3 == v[lane] % 3) match |= 1u << k;
            exclusive ^= v[k]; all &= v[k] | 1; hundreds &= v[k] / 100 == v[lane & 1] / 100;
        }
        for (int k = 0; k < 20; ++k) bits |= (v[k] & 1) << k;
        CHECK(i, p[0], sum);
        CHECK(i, p[1], lane & 1 ? v[lane ^ 2] + most : v[lane >= 2 ? lane - 2 : lane] + least);
        CHECK(i, p[2], v[(lane & ~7) + (lane + 3) % 8]);
        CHECK(i, p[3], v[lane % 16 + 3 < 16 ? lane + 3 : lane]);
        CHECK(i, p[4], v[lane % 8 >= 3 ? lane - 3 : lane]);
        CHECK(i, p[5], v[lane ^ 5]);
        CHECK(i, p[6], lane < 16 ? v[lane] : v[lane ^ 16]);
        CHECK(i, p[7], hundreds); CHECK(i, p[8], hundreds); CHECK(i, p[9], 1); CHECK(i, p[10], 1); CHECK(i, p[11], (int)match);
        CHECK(i, p[12], any + 2);
        if (lane < 20) CHECK(i, p[13], bits);
        CHECK(i, p[14], v[31 - lane] + v[lane < 31 ? lane + 1 : lane]);
        CHECK(i, p[15], (int)exclusive + (int)all);
    }
    static float fx[320], fy[32];
    float want = 0;
    for (int i = 0; i < 320; ++i) { fx[i] = i % 17; want += fx[i]; }
    specialised<<<1, 64>>>(fx, fy, 10);
    for (int i = 0; i < 32; ++i) CHECK(i, fy[i], want);
    return failures != 0;
}
