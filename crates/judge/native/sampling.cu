// Samples the inputs of a window: normal and uniform float32 numbers.
//
// Numbers of a tensor are a function of the set's seed, the tensor's position in the set and the element's
// number, whatever else is sampled with it: Philox4x32-7 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011: the fewest rounds that pass BigCrush), whose key is the seed, and Box and Muller's transform
// ("A note on the generation of random normal deviates", 1958) in the GPU's own approximations, which are exact
// to 2^-21. With more of either, computing the numbers takes longer than writing them.
//
// sampling.ptx is made from this by `nvcc -ptx -O3 -prec-sqrt=false -arch=compute_75` (13.0), with `.version` set
// to 6.3, the first that knows that architecture, so that older drivers take it too.

typedef unsigned long long u64;

// A tensor to be filled; `count` numbers from `at` on, which is aligned to 16 bytes.
struct Job {
    u64 at;
    u64 count;
    u64 seed;
    unsigned position;
    unsigned normal;
};

struct Four {
    unsigned x, y, z, w;
};

static __device__ Four philox(u64 seed, u64 number, unsigned position) {
    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
    Four c = {(unsigned)number, (unsigned)(number >> 32), position, 0};
#pragma unroll
    for (int round = 0; round < 7; ++round) {
        const u64 a = 0xD2511F53ull * c.x, b = 0xCD9E8D57ull * c.z;
        c = {(unsigned)(b >> 32) ^ c.y ^ k0, (unsigned)b, (unsigned)(a >> 32) ^ c.w ^ k1, (unsigned)a};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// In [0, 1), with 24 bits, as torch's.
static __device__ float uniform(unsigned bits) { return (float)(bits >> 8) * 5.9604645e-8f; }

// Two numbers from two words; the first uniform one is in (0, 1].
static __device__ void normal(unsigned a, unsigned b, float* two) {
    const float u = (float)a * 2.3283064e-10f + 1.1641532e-10f;
    // The approximate logarithm of a number just below one may be positive.
    const float radius = sqrtf(fmaxf(-2.0f * __logf(u), 0.0f));
    float sine, cosine;
    __sincosf((float)b * 1.4629181e-9f, &sine, &cosine);
    two[0] = radius * cosine;
    two[1] = radius * sine;
}

extern "C" __global__ void fill(const Job* jobs) {
    const Job job = jobs[blockIdx.y];
    const u64 step = (u64)gridDim.x * blockDim.x;
    float* const to = reinterpret_cast<float*>(job.at);
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; 4 * i < job.count; i += step) {
        const Four bits = philox(job.seed, i, job.position);
        float four[4];
        if (job.normal) {
            normal(bits.x, bits.y, four);
            normal(bits.z, bits.w, four + 2);
        } else {
            four[0] = uniform(bits.x);
            four[1] = uniform(bits.y);
            four[2] = uniform(bits.z);
            four[3] = uniform(bits.w);
        }
        if (4 * i + 4 <= job.count) {
            reinterpret_cast<float4*>(to)[i] = make_float4(four[0], four[1], four[2], four[3]);
        } else {
            for (u64 k = 4 * i; k < job.count; ++k) to[k] = four[k - 4 * i];
        }
    }
}
