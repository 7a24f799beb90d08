// How engineers write: many template parameters, nested and anonymous namespaces, instantiations, macros
// around everything, attributes, literals of every kind, line continuations.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cstdint>
#include <cstdio>
#include <type_traits>
#include "common.cuh"
#include "style.inl"

#ifndef NTHREADS
#define NTHREADS 128
#endif
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
#define CHECK_CUDA(expr)                                                          \
    do {                                                                          \
        cudaError_t err__ = (expr);                                               \
        if (err__ != cudaSuccess) {                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err__)); \
            return static_cast<int>(err__);                                       \
        }                                                                         \
    } while (0)
#define CUDA_KERNEL_LOOP(i, n) \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define HD __host__ __device__ __forceinline__
#define RESTRICT __restrict__
#define DISPATCH_BOOL(condition, NAME, ...)                 \
    [&] {                                                   \
        if (condition) {                                    \
            constexpr static bool NAME = true;              \
            return __VA_ARGS__();                           \
        } else {                                            \
            constexpr static bool NAME = false;             \
            return __VA_ARGS__();                           \
        }                                                   \
    }()

namespace project::kernels {
inline namespace v1 {
namespace detail {
template <typename T, int kVec>
struct alignas(sizeof(T) * kVec) Vec {
    T val[kVec];
    HD T& operator[](int i) { return val[i]; }
    HD const T& operator[](int i) const { return val[i]; }
};
template <typename T>
struct Traits;
template <>
struct Traits<float> {
    using Acc = float;
    static constexpr int kLanes = 4;
};
template <>
struct Traits<__half> {
    using Acc = float;
    static constexpr int kLanes = 8;
};
constexpr auto next_pow2 = [](int v) constexpr {
    int p = 1;
    while (p < v) p <<= 1;
    return p;
};
static_assert(next_pow2(100) == 128 && 1'000'000 == 0xF'4240 && 0b1010 == 10, "digit separators");
enum class Act : std::uint8_t { kNone = 0, kRelu, kSquare };

template <Act kAct, typename T>
[[nodiscard]] HD T activate(const T v) {
    if constexpr (kAct == Act::kRelu) {
        return v > T(0) ? v : T(0);
    } else if constexpr (kAct == Act::kSquare) {
        return v * v;
    } else {
        return v;
    }
}
}  // namespace detail

template <typename T, int kVec, int kThreads, detail::Act kAct, bool kBias,
          typename Acc = typename detail::Traits<T>::Acc,
          std::enable_if_t<(kVec > 0 && kThreads >= 32), int> = 0>
__global__ void __launch_bounds__(kThreads, 2)
fused(const T* RESTRICT x,
      const T* RESTRICT bias, T* RESTRICT y,
      [[maybe_unused]] const int n, const int d) {
    using V = detail::Vec<T, kVec>;
    const int stride = gridDim.x * kThreads;
    for (int v = blockIdx.x * kThreads + threadIdx.x; v < n / kVec; v += stride) {
        V in = reinterpret_cast<const V*>(x)[v], out;
#pragma unroll
        for (int j = 0; j < kVec; ++j) {
            Acc a = static_cast<Acc>(in[j]);
            if constexpr (kBias) a += static_cast<Acc>(bias[(v * kVec + j) % d]);
            out[j] = static_cast<T>(detail::activate<kAct>(a));
        }
        reinterpret_cast<V*>(y)[v] = out;
    }
}

template __global__ void fused<float, 4, NTHREADS, detail::Act::kSquare, false, float, 0>(
    const float*, const float*, float*, int, int);
}  // namespace v1
}  // namespace project::kernels

namespace {
namespace pk = project::kernels;
constexpr const char* kSource = R"cuda(
__global__ void not_a_kernel(float* x) { k<<<1, 2>>>(x); } /* " */
)cuda";

static __global__ __launch_bounds__(NTHREADS) void block_sum(const float* RESTRICT x, float* RESTRICT out, int n)
{
    __shared__ float warp_sums[NTHREADS / 32];
    float v = 0.f;
    CUDA_KERNEL_LOOP(i, n) { v += x[i]; }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1)
        v += __shfl_down_sync(0xffff'ffff, v, o);
    const auto lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) warp_sums[warp] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        float s = 0.0f;
        for (auto w : warp_sums) s += w;
        atomicAdd(out, s);
    }
}

struct Params final {
    const float* x;
    float* y;
    int n;
    Params(const float* x_, float* y_, int n_) : x{x_}, y(y_), n{n_} {}
};
template <class... Ops>
__global__ void chain_kernel(const Params p, Ops... ops) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.n) { return; }
    float v = p.x[i];
    ((v = ops(v)), ...);
    p.y[i] = v;
}
template <unsigned Dim>
struct Indexer {
    __device__ static unsigned int at() { return blockIdx.x * blockDim.x + threadIdx.x + Dim; }
    template <typename U>
    __device__ auto plus(U u) const -> decltype(u + 1) { return u + threadIdx.x % 2; }
};
__global__ void indexer_kernel(float* y, int n) {
    const auto i = Indexer<0u>::at();
    if (i < n) y[i] = Indexer<1>{}.template plus<float>(0.5f) + Indexer<2>::at();
}
}  // namespace

extern "C" {
[[gnu::visibility("default")]] int fused_act(const float* x, const float* bias, float* y, std::int64_t n, int d, uint8_t act,
                                             bool with_bias, cudaStream_t stream) {
    using pk::detail::Act;
    constexpr int kVec = pk::detail::Traits<float>::kLanes;
    const dim3 grid{static_cast<unsigned>(CEIL_DIV(n / kVec, NTHREADS))};
    DISPATCH_BOOL(with_bias, kBias, [&] {
        switch (static_cast<Act>(act)) {
            case Act::kRelu:
                pk::fused<float, kVec, NTHREADS, Act::kRelu, kBias>
                    <<<grid, NTHREADS, /*smem=*/0, stream>>>(x, bias, y, (int)n, d);
                break;
            case Act::kSquare:
                pk::fused<float, kVec, NTHREADS, Act::kSquare, kBias><<<grid, dim3(NTHREADS), 0, stream>>>(x, bias, y, (int)n, d);
                break;
            default:
                project::kernels::v1::fused<float, kVec, NTHREADS, Act::kNone, kBias><<<grid, NTHREADS, 0, stream>>>(
                    x, bias, y, static_cast<int>(n), d);
        }
    });
    CHECK_CUDA(cudaGetLastError());
    return 0;
}

auto fused_half(const __half* x, const __half* bias, __half* y, int n, int d, cudaStream_t stream) -> int {
    ::pk::fused<__half, 8, NTHREADS, pk::detail::Act::kRelu, true><<<4, NTHREADS, 0, stream>>>(x, bias, y, n, d);
    CHECK_CUDA((cudaPeekAtLastError()));
    return 0;
}

int sum_style(const float* __restrict__ const x, float out[], const int n, cudaStream_t stream) noexcept
{
    CHECK_CUDA(cudaMemsetAsync(out, 0, sizeof(*out), stream));
    block_sum <<< dim3(CEIL_DIV(n, NTHREADS * 4)), NTHREADS, 0, stream >>> (x, out, n);
    CHECK_CUDA(cudaGetLastError());
    return kSource[0] != '\n';
}

int chain(const float* x, float* y, int n, cudaStream_t stream) {
    chain_kernel<<<CEIL_DIV(n, 256), 256, 0, stream>>>(Params{x, y, n}, Add{1.f}, Scale{2.f}, Add{-3.f});
    return 0;
}
int indexer(float* y, int n, cudaStream_t stream) {
    indexer_kernel<<<CEIL_DIV(n, 64), 64, 0, stream>>>(y, n);
    return 0;
}
}  // extern "C"
