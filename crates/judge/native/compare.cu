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
    unsigned has_own;
    unsigned real;
};

// Sums over all elements; the largest error as the bits of a double, which order like it.
struct Told {
    u64 wrong, non_finite, largest;
};

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

static __device__ double value(const Side& side, u64 i) {
    if (side.rank) {
        u64 at = 0;
        for (int d = (int)side.rank - 1; d >= 0; --d) {
            at += i % side.shape[d] * side.strides[d];
            i /= side.shape[d];
        }
        i = at;
    }
    switch (side.dtype) {
        case 0: return ((const double*)side.base)[i];
        case 1: return ((const float*)side.base)[i];
        case 2: return half_value(((const unsigned short*)side.base)[i]);
        case 3: return __uint_as_float((unsigned)((const unsigned short*)side.base)[i] << 16);
        case 4: return (double)((const long long*)side.base)[i];
        case 5: return ((const int*)side.base)[i];
        case 6: return ((const short*)side.base)[i];
        case 7: return ((const signed char*)side.base)[i];
        default: return side.base[i];
    }
}

static __device__ bool is_finite(double x) {
    return (__double_as_longlong(x) & 0x7ff0000000000000ll) != 0x7ff0000000000000ll;
}

static __device__ bool same(double a, double b) { return a == b || (a != a && b != b); }

extern "C" __global__ void compare(const Job* job, Told* told) {
    u64 wrong = 0, non_finite = 0, largest = 0;
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < job->count; i += step) {
        const double g = value(job->got, i), w = value(job->want, i);
        const double error = fabs(g - w);
        bool right;
        if (job->real && is_finite(w)) {
            right = error <= __dadd_rn(job->atol, __dmul_rn(job->rtol, fabs(w)));
        } else {
            right = same(g, w) || (!job->real && job->has_own && same(g, value(job->own, i)));
        }
        if (error > __longlong_as_double(largest)) largest = __double_as_longlong(error);
        if (!right) {
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
