// Pointers to kernels, in the ways that sources name, keep, choose and pass them.
#include <cuda_runtime.h>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {
template <int N>
__global__ void add_n(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + N;
}
__global__ void rotate(const float* __restrict__ x, float* __restrict__ y, const int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    if (i < n) tile[i] = x[i];
    __syncthreads();
    if (i < n) y[i] = tile[(i + 1) % n];
}
static void __global__ negate(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = -x[i];
}
template <typename T>
__global__ void copy(const T* x, T* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i];
}
}  // namespace

using Kernel = void (*)(const float*, float*, int);
typedef void (*OldKernel)(const float*, float*, int);
using Function = void(const float*, float*, int);
typedef void OldFunction(const float*, float*, int);

static Kernel pick(int which) {
    switch (which) {
        case 0: return rotate;
        case 1: return &negate;
        case 2: return add_n<2>;
        default: return copy;
    }
}
void (*pick_old(bool first))(const float*, float*, int) { return first ? rotate : negate; }
auto pick_trailing(bool first) -> void (*)(const float*, float*, int) { return first ? add_n<1> : add_n<2>; }

static void (*const table[])(const float*, float*, int) = {rotate, negate, add_n<2>,
                                                           copy<float>};
static constexpr Kernel aliases[] = {&rotate, &negate, &add_n<2>, &copy<float>};
struct Entry {
    const char* name;
    void (*kernel)(const float*, float*, int);
    int threads;
};
static const Entry entries[] = {{"rotate", rotate, 64}, {"negate", negate, 32}, {"add", add_n<2>, 64}, {"copy", copy, 64}};

template <class K, class... Args>
static void run(K kernel, Args... args) { kernel<<<1, 64>>>(args...); }
template <void (*K)(const float*, float*, int)>
static void run_value(const float* x, float* y, int n) { K<<<1, 64>>>(x, y, n); }
template <auto K>
static void run_auto(const float* x, float* y, int n) { K<<<1, 64>>>(x, y, n); }
static void run_plain(void (*negate)(const float*, float*, int), const float* x, float* y, int n) { negate<<<1, 64>>>(x, y, n); }
// Types that are deduced from the kernel that is passed.
struct Launcher {
    dim3 block{64};
    template <typename... Params, typename... Given>
    void operator()(void (*kernel)(Params...), Given&&... given) const {
        kernel<<<1, block>>>(static_cast<Given&&>(given)...);
    }
};
template <typename T>
static void run_typed(const T* x, T* y, int n, void (*kernel)(const T*, T*, int)) { kernel<<<1, 64>>>(x, y, n); }
static void on_host(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i] * 3; }

// which: 0 rotate, 1 negate, 2 add two, 3 copy; way: how it is named.
extern "C" int pointers(const float* x, float* y, int n, int which, int way, cudaStream_t s) {
    const bool odd = which % 2;
    void* arguments[] = {&x, &y, &n};
    switch (way) {
        case 0: pick(which)<<<1, 64, 0, s>>>(x, y, n); break;
        case 1: table[which]<<<1, 64, 0, s>>>(x, y, n); break;
        case 2: aliases[which]<<<1, 64, 0, s>>>(x, y, n); break;
        case 3: entries[which].kernel<<<1, entries[which].threads, 0, s>>>(x, y, n); break;
        case 4: (which == 0 ? rotate : which == 1 ? negate : which == 2 ? add_n<2> : copy<float>)<<<1, 64>>>(x, y, n); break;
        case 5: {
            auto k = rotate;
            if (which == 1) k = negate;
            if (which == 2) k = add_n<2>;
            if (which == 3) k = &copy<float>;
            k<<<1, 64>>>(x, y, n);
            break;
        }
        case 6: {
            void (*k)(const float*, float*, int) = NULL;
            if (which == 0) k = rotate;
            else if (which == 1) k = negate;
            else if (which == 2) k = add_n<2>;
            else k = copy;
            if (k == nullptr || !k) return 1;
            (*k)<<<dim3(1), dim3(64)>>>(x, y, n);
            break;
        }
        case 7: {
            decltype(&rotate) k = which == 0 ? &rotate : which == 1 ? &negate : &add_n<2>;
            if (which == 3) k = copy;
            k<<<1, 64>>>(x, y, n);
            break;
        }
        case 8: run(pick(which), x, y, n); break;
        case 9: {
            auto go = [&](auto k) { k<<<1, 64, 0, s>>>(x, y, n); };
            if (which == 0) go(rotate);
            else if (which == 1) go(negate);
            else if (which == 2) go(add_n<2>);
            else go(copy<float>);
            break;
        }
        case 10:
            if (which == 0) run_value<rotate>(x, y, n);
            else if (which == 1) run_value<negate>(x, y, n);
            else if (which == 2) run_auto<add_n<2>>(x, y, n);
            else run_auto<&copy<float>>(x, y, n);
            break;
        case 11: run_plain(pick(which), x, y, n); break;
        case 12: {
            Function* k = which == 0 ? rotate : which == 1 ? negate : add_n<2>;
            if (which == 3) k = copy<float>;
            OldFunction* again = k;
            again<<<1, 64>>>(x, y, n);
            break;
        }
        case 13: {
            const void* k = which == 0 ? (const void*)rotate : which == 1 ? (const void*)negate
                          : which == 2 ? (const void*)add_n<2> : reinterpret_cast<const void*>(&copy<float>);
            return cudaLaunchKernel(k, dim3(1), dim3(64), arguments, 0, s);
        }
        case 14: {
            OldKernel k = pick(which);
            return cudaLaunchKernel((const void*)k, 1, 64, arguments, 0, s);
        }
        case 15:
            if (which == 0) return cudaLaunchKernel((void*)rotate, dim3(1), dim3(64), arguments, 0, s);
            if (which == 1) return cudaLaunchKernel(negate, dim3(1), dim3(64), arguments, 0, s);
            if (which == 2) return cudaLaunchKernel((const void*)&add_n<2>, dim3(1), dim3(64), arguments, 0, s);
            return cudaLaunchKernel(reinterpret_cast<void*>(copy<float>), dim3(1), dim3(64), arguments, 0, s);
        case 16: {
            std::vector<void (*)(const float*, float*, int)> list = {rotate, negate, add_n<2>};
            list.push_back(copy);
            std::map<std::string, Kernel> named;
            for (auto& e : entries) named[e.name] = e.kernel;
            std::array<Kernel, 2> two = {list[which], named.begin()->second};
            two[0]<<<1, 64>>>(x, y, n);
            break;
        }
        case 17:
            if (odd) pick_old(false)<<<1, 64>>>(x, y, n);
            else pick_old(true)<<<1, 64>>>(x, y, n);
            if (which >= 2) pick(which)<<<1, 64>>>(x, y, n);
            break;
        case 18:
            if (which == 0) Launcher()(rotate, x, y, n);
            else if (which == 1) Launcher()(&negate, x, y, n);
            else if (which == 2) run_typed(x, y, n, add_n<2>);
            else run_typed(x, y, n, &copy<float>);
            break;
        default: return 1;
    }
    return 0;
}

// What asks about kernels.
extern "C" int about_kernels(int* answers, cudaStream_t s) {
    int blocks = 0, grid = 0, block = 0;
    cudaFuncAttributes attributes;
    Kernel k = rotate;
    if (cudaFuncSetAttribute(rotate, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 * 1024)) return 1;
    if (cudaFuncSetAttribute((const void*)add_n<2>, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024)) return 2;
    if (cudaFuncSetAttribute(k, cudaFuncAttributePreferredSharedMemoryCarveout, 50)) return 3;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add_n<3>, 256, 0)) return 4;
    if (cudaOccupancyMaxPotentialBlockSize(&grid, &block, negate, 0, 0)) return 5;
    if (cudaFuncGetAttributes(&attributes, copy<float>) || cudaFuncSetCacheConfig(negate, cudaFuncCachePreferL1)) return 6;
    void (*host)(const float*, float*, int) = on_host;
    float in[2] = {1, 2}, out[2];
    host(in, out, 2);
    answers[0] = blocks, answers[1] = block, answers[2] = (int)out[1], answers[3] = k == table[0] && k != table[1];
    pick_trailing(true)<<<1, 32, 0, s>>>(in, out, 2);
    answers[4] = (int)out[1];
    return 0;
}
