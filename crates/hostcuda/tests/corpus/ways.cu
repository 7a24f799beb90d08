// More of the same: what is launched hides behind names, macros, members, references and lambdas.
#include <cuda_runtime.h>
#include <functional>
#include <utility>
#define KERNEL __global__ void
#define LAUNCH_BOUNDS __launch_bounds__(256)
#define SMEM(T, n) __shared__ T n[64]
#define DEFINE_KERNEL(name) __global__ void name(float* x, int n)
#define TEMPLATE_T template <typename T>
#define RUN(k, n, ...) do { k<<<1, 64, 0, s>>>(__VA_ARGS__, n); if (cudaGetLastError() != cudaSuccess) return 7; } while (0)
#define IF_OK(x) if ((x) != cudaSuccess) return 9

__global__ void forward(float*, int);
KERNEL LAUNCH_BOUNDS one(float* x, int n) { SMEM(float, a); SMEM(float, b); int t = threadIdx.x; a[t] = x[t]; __syncthreads(); b[t] = a[63 - t]; __syncthreads(); if (t < n) x[t] = b[t] + 1; }
DEFINE_KERNEL(two) {
    int t = threadIdx.x;
    if (t < n)
        x[t] *= 2;
}
TEMPLATE_T KERNEL three(T* x, int n) { if (threadIdx.x < n) x[threadIdx.x] -= T(3); }
__global__ void forward(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = n; }

template <class T> struct Op { using Fn = void (*)(T*, int); static Fn get(bool b) { return b ? three<T> : nullptr; } };
constexpr auto kThree = three<float>;
using Fn = void(float*, int);
template <Fn* K> static void go(float* x, int n) { K<<<1, 64>>>(x, n); }
struct Runner {
    explicit Runner(void (*k)(float*, int), void (*h)(int) = nullptr) : k_(k), h_(h) {}
    void operator()(float* x, int n) const { k_<<<1, 64>>>(x, n); if (h_) h_(n); }
  private:
    void (*k_)(float*, int);
    void (*h_)(int);
};
static int called = 0;
static void each(void (*cb)(int), int n) { for (int i = 0; i < n; ++i) cb(i); }
typedef void (*kernel_fn)(float*, int);
static std::pair<const char*, kernel_fn> named[] = {{"one", one}, {"two", two}, {"three", three<float>}};
static const struct { kernel_fn fn; int block; } plans[] = {{one, 64}, {two, 64}};
template <typename F> static void with(F&& f) { f(); }

extern "C" int ways(float* x, int n, int which, cudaStream_t s) {
    switch (which) {
    case 0: if (n > 0) RUN(one, n, x); else RUN(two, n, x); break;
    case 1: Op<float>::get(true)<<<1, 64, 0, s>>>(x, n); break;
    case 2: kThree<<<1, 64>>>(x, n); break;
    case 3: go<two>(x, n); break;
    case 4: Runner(forward, [](int i) { called += i; })(x, n); return called;
    case 5: { each([](int i) { called -= i; }, n); auto& k = two; k<<<1, 64>>>(x, n); return called; }
    case 6: named[0].second<<<1, 64>>>(x, n); plans[1].fn<<<1, plans[1].block>>>(x, n); break;
    case 7: { void* args[] = {&x, &n}; IF_OK(cudaLaunchKernel((const void*)three<float>, dim3(1), dim3(64), args, 0, s)); break; }
    case 8: { auto fn = two; void* args[] = {&x, &n}; IF_OK(cudaLaunchKernel(reinterpret_cast<const void*>(fn), dim3(1), dim3(64), args, 0, s)); break; }
    case 9: with([&] { two<<<dim3(1), dim3(64)>>>(x, n); }); break;
    case 10: { std::function<void(float*, int)> f = [&](float* p, int m) { two<<<1, 64>>>(p, m); }; f(x, n); break; }
    case 11: { const auto k = n > 5 ? &one : &two; (k)<<<1, 64>>>(x, n); break; }
    case 12: { static Fn* const fs[] = {one, two}; fs[which - 11]<<<1, 64>>>(x, n); break; }
    }
    return 0;
}
