// Compares results with the truth where they lie, in the judge's own context. What is right is what
// compare.rs says; it reads the elements itself where these kernels find something wrong.
//
// compare.ptx is made from this by `nvcc -ptx -O3 -arch=compute_75` (13.0), with `.version` set to
// 6.3, the first that knows that architecture, so that older drivers take it too.

typedef unsigned long long u64;

// A tensor: strides in elements, or rank 0 for one that is contiguous.
struct Side {
    const unsigned char* base;
    unsigned dtype;
    unsigned rank;
    u64 shape[8];
    u64 strides[8];
};

struct Job {
    Side got, want, own;
    u64 count;
    double atol, rtol;
    // The least magnitude that rounds to infinity in the dtype of `got`.
    double limit;
    // What memory held before: eight bytes again and again, from this address on.
    u64 poison, poison_start;
    unsigned has_own;
    unsigned real;
    unsigned poisoned;
};

// Sums over all elements; the largest error as the bits of a double, which order like it.
struct Told {
    u64 wrong, non_finite, largest;
};

// Bytes of an element, as in dtype.rs.
static __device__ unsigned size_of(unsigned dtype) {
    switch (dtype) {
        case 0: case 4: return 8;
        case 1: case 5: return 4;
        case 2: case 3: case 6: return 2;
        default: return 1;
    }
}

// Numbers as in dtype.rs.
static __device__ double half_value(unsigned bits) {
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    const int exponent = bits >> 10 & 0x1f;
    const double fraction = bits & 0x3ff;
    if (exponent == 0) return sign * fraction * 0x1p-24;
    if (exponent == 0x1f) {
        return __longlong_as_double(fraction == 0.0 ? 0x7ff0000000000000ll : 0x7ff8000000000000ll) * sign;
    }
    return sign * (1.0 + fraction / 1024.0) * __longlong_as_double((u64)(exponent - 15 + 1023) << 52);
}

static __device__ double e4m3_value(unsigned bits) {
    const double sign = bits & 0x80 ? -1.0 : 1.0;
    const int exponent = bits >> 3 & 0xf;
    const double fraction = bits & 7;
    if (exponent == 0) return sign * fraction * 0x1p-9;
    if (exponent == 0xf && (bits & 7) == 7) return __longlong_as_double(0x7ff8000000000000ll);
    return sign * (1.0 + fraction / 8.0) * __longlong_as_double((u64)(exponent - 7 + 1023) << 52);
}

// Where an element lies.
static __device__ const unsigned char* place(const Side& side, u64 i) {
    if (side.rank) {
        u64 at = 0;
        for (int d = (int)side.rank - 1; d >= 0; --d) {
            at += i % side.shape[d] * side.strides[d];
            i /= side.shape[d];
        }
        i = at;
    }
    return side.base + i * size_of(side.dtype);
}

static __device__ double value(unsigned dtype, const unsigned char* at) {
    switch (dtype) {
        case 0: return *(const double*)at;
        case 1: return *(const float*)at;
        case 2: return half_value(*(const unsigned short*)at);
        case 3: return __uint_as_float((unsigned)*(const unsigned short*)at << 16);
        case 4: return (double)*(const long long*)at;
        case 5: return *(const int*)at;
        case 6: return *(const short*)at;
        case 7: return *(const signed char*)at;
        case 10: return e4m3_value(*at);
        case 11: return half_value((unsigned)*at << 8);
        default: return *at;
    }
}

static __device__ u64 bits(unsigned dtype, const unsigned char* at) {
    switch (size_of(dtype)) {
        case 8: return *(const u64*)at;
        case 4: return *(const unsigned*)at;
        case 2: return *(const unsigned short*)at;
        default: return *at;
    }
}

// What hardware gives for "not a number".
static __device__ bool usual_nan(unsigned dtype, u64 bits) {
    switch (dtype) {
        case 0: return bits == 0x7ff8000000000000ull || bits == 0xfff8000000000000ull || bits == ~0ull;
        case 1: return bits == 0x7fffffff || bits == 0x7fc00000 || bits == 0xffc00000 || bits == 0xffffffff;
        case 2: return bits == 0x7fff || bits == 0x7e00 || bits == 0xfe00 || bits == 0xffff;
        case 3: return bits == 0x7fff || bits == 0x7fc0 || bits == 0xffc0 || bits == 0xffff;
        case 10: return bits == 0x7f || bits == 0xff;
        case 11: return bits == 0x7e || bits == 0x7f || bits == 0xfe || bits == 0xff;
        default: return false;
    }
}

static __device__ bool is_finite(double x) {
    return (__double_as_longlong(x) & 0x7ff0000000000000ll) != 0x7ff0000000000000ll;
}

static __device__ bool same(double a, double b) { return a == b || (a != a && b != b); }

static __device__ double allowed(const Job& job, double truth) {
    return __dadd_rn(job.atol, __dmul_rn(job.rtol, fabs(truth)));
}

// `Terms::right` of compare/right.rs.
static __device__ bool right(const Job& job, u64 i, const unsigned char* got, double g,
                             const unsigned char* want, double w) {
    if (!job.real) {
        const u64 mine = bits(job.got.dtype, got);
        if (mine == bits(job.want.dtype, want)) return true;
        return job.has_own && mine == bits(job.own.dtype, place(job.own, i));
    }
    const double most = allowed(job, w);
    if (is_finite(w)) {
        if (fabs(g - w) <= most) return true;
        const bool infinite = g == g && !is_finite(g);
        if (infinite && (g > 0) == !(__double_as_longlong(w) < 0) && fabs(w) + most >= job.limit) {
            return true;
        }
    } else if (same(g, w)) {
        return true;
    }
    if (!job.has_own) return false;
    const double own = value(job.own.dtype, place(job.own, i));
    const bool agrees =
        is_finite(own) && is_finite(w) ? fabs(own - w) <= most : same(own, w);
    const bool near = is_finite(own) && fabs(g - own) <= allowed(job, own);
    return !agrees && (near || same(g, own));
}

// `Terms::unwritten` of compare/right.rs.
static __device__ bool unwritten(const Job& job, const unsigned char* got, double g) {
    if (!job.poisoned) return false;
    const unsigned dtype = job.got.dtype, size = size_of(dtype);
    if (job.real ? is_finite(g) : size < 4) return false;
    const u64 mine = bits(dtype, got);
    if (job.real && usual_nan(dtype, mine)) return false;
    const unsigned turn = (unsigned)(((u64)got - job.poison_start) % 8) * 8;
    const u64 word = turn ? job.poison >> turn | job.poison << (64 - turn) : job.poison;
    return mine == (size == 8 ? word : word & ((1ull << 8 * size) - 1));
}

extern "C" __global__ void compare(const Job* at, Told* told) {
    const Job& job = *at;
    u64 wrong = 0, non_finite = 0, largest = 0;
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += step) {
        const unsigned char *got = place(job.got, i), *want = place(job.want, i);
        const double g = value(job.got.dtype, got), w = value(job.want.dtype, want);
        const double error = fabs(g - w);
        const bool fine = right(job, i, got, g, want, w) && !unwritten(job, got, g);
        // How far one is off that is right otherwise than by the truth is no error.
        if ((!fine || error <= allowed(job, w)) && error > __longlong_as_double(largest)) {
            largest = __double_as_longlong(error);
        }
        if (!fine) {
            ++wrong;
            if (!is_finite(g) && is_finite(w)) {
                ++non_finite;
                largest = 0x7ff0000000000000ull;
            }
        }
    }
    if (wrong) atomicAdd(&told->wrong, wrong);
    if (non_finite) atomicAdd(&told->non_finite, non_finite);
    // Most threads find that another has seen as much.
    if (largest > *(volatile u64*)&told->largest) atomicMax(&told->largest, largest);
}

// Counts the words of 8 bytes that differ, and the bytes after the last whole word.
extern "C" __global__ void differ(const unsigned char* a, const unsigned char* b, u64 bytes,
                                  u64* count) {
    const u64 step = (u64)gridDim.x * blockDim.x, words = bytes / 8;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 found = 0;
    for (u64 i = first; i < words; i += step) found += ((const u64*)a)[i] != ((const u64*)b)[i];
    for (u64 i = words * 8 + first; i < bytes; i += step) found += a[i] != b[i];
    if (found) atomicAdd(count, found);
}

// Counts the 16-byte words that are not the poison, in ranges of offsets from `base`: one block per range.
extern "C" __global__ void guard(const char* base, const u64* ranges, unsigned poison, u64* wrong) {
    const char* from = base + ranges[2 * blockIdx.x];
    const u64 words = (ranges[2 * blockIdx.x + 1] - ranges[2 * blockIdx.x]) / 16;
    unsigned found = 0;
    for (u64 i = threadIdx.x; i < words; i += blockDim.x) {
        const uint4 v = reinterpret_cast<const uint4*>(from)[i];
        found += v.x != poison || v.y != poison || v.z != poison || v.w != poison;
    }
    if (found) atomicAdd(wrong, found);
}
