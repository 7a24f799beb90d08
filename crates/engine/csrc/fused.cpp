// Compiles `kernels.cu` for the GPU at hand and starts its kernels on torch's stream, where a CUDA graph may be
// recorded. Each function gives 0, or 1 with words in warpwright_error() (`shim.cpp`).
#include <ATen/ATen.h>
#include <functional>
#ifdef WARPWRIGHT_CUDA
#include <c10/cuda/CUDAFunctions.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <nvrtc.h>
#include <string>
#endif

using at::Tensor;

int warpwright_guarded(const std::function<void()> &work);

namespace {

#ifdef WARPWRIGHT_CUDA

// Loaded when they are needed: a host without a GPU has no driver.
template <typename F> F *named(void *library, const char *name) {
  auto *found = library ? dlsym(library, name) : nullptr;
  TORCH_CHECK(found, name, " is not to be found: ", library ? "" : dlerror());
  return reinterpret_cast<F *>(found);
}

// NVRTC as pip puts it beside torch, which looks for its own parts by name alone: they are loaded first.
void *nvrtc() {
  static void *library = [] {
    Dl_info torch{};
    dladdr(reinterpret_cast<void *>(&c10::cuda::set_device), &torch);
    std::string beside = torch.dli_fname ? torch.dli_fname : "";
    beside.resize(beside.rfind('/') == std::string::npos ? 0 : beside.rfind('/') + 1);
    auto major = std::to_string(CUDA_VERSION / 1000);
    auto minor = std::to_string(CUDA_VERSION % 1000 / 10);
    std::string folders[] = {beside + "../../nvidia/cu" + major + "/lib/", ""};
    for (const auto &folder : folders) {
      dlopen((folder + "libnvrtc-builtins.so." + major + "." + minor).c_str(), RTLD_LAZY | RTLD_GLOBAL);
      if (void *found = dlopen((folder + "libnvrtc.so." + major).c_str(), RTLD_LAZY))
        return found;
    }
    return static_cast<void *>(nullptr);
  }();
  TORCH_CHECK(library, "NVRTC is not to be found: it is part of torch for CUDA as pip installs it");
  return library;
}

void *driver() {
  static void *library = dlopen("libcuda.so.1", RTLD_LAZY);
  return library;
}

void check(CUresult result, const char *what) { TORCH_CHECK(result == CUDA_SUCCESS, what, " failed: CUDA error ", int(result)); }

#define DRIVER(name) named<decltype(name)>(driver(), #name)
#define NVRTC(name) named<decltype(name)>(nvrtc(), #name)

// What the driver takes, for a GPU of this compute capability: 90 for 9.0.
std::string compiled(const char *source, int capability) {
  nvrtcProgram program = nullptr;
  TORCH_CHECK(NVRTC(nvrtcCreateProgram)(&program, source, "kernels.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS,
              "NVRTC takes no program");
  auto architecture = "--gpu-architecture=sm_" + std::to_string(capability);
  const char *options[] = {architecture.c_str(), "--std=c++17"};
  auto result = NVRTC(nvrtcCompileProgram)(program, 2, options);
  std::string binary;
  size_t size = 0;
  if (result == NVRTC_SUCCESS) {
    NVRTC(nvrtcGetCUBINSize)(program, &size);
    binary.resize(size);
    NVRTC(nvrtcGetCUBIN)(program, binary.data());
  } else {
    NVRTC(nvrtcGetProgramLogSize)(program, &size);
    binary.resize(size);
    NVRTC(nvrtcGetProgramLog)(program, binary.data());
  }
  NVRTC(nvrtcDestroyProgram)(&program);
  TORCH_CHECK(result == NVRTC_SUCCESS, "kernels.cu does not compile for sm_", capability, ": ", binary.c_str());
  return binary;
}

struct Kernels {
  CUfunction add_norm, turn_keep, gate, choose;
};

// Of a GPU: compiled once.
const Kernels &kernels(int gpu, const char *source) {
  static std::mutex mutex;
  static std::map<int, Kernels> known;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = known.find(gpu);
  if (found != known.end())
    return found->second;
  TORCH_CHECK(source, "kernels were not compiled for GPU ", gpu);
  CUdevice device;
  int major, minor;
  check(DRIVER(cuDeviceGet)(&device, gpu), "cuDeviceGet");
  auto attribute = DRIVER(cuDeviceGetAttribute);
  check(attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute");
  check(attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "cuDeviceGetAttribute");
  auto binary = compiled(source, 10 * major + minor);
  // The context that torch uses becomes this thread's.
  c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)));
  c10::cuda::device_synchronize();
  CUmodule module;
  check(DRIVER(cuModuleLoadData)(&module, binary.data()), "cuModuleLoadData");
  Kernels made{};
  std::pair<const char *, CUfunction *> functions[] = {{"add_norm", &made.add_norm},
                                                       {"turn_keep", &made.turn_keep},
                                                       {"gate", &made.gate},
                                                       {"choose", &made.choose}};
  for (auto &[name, function] : functions)
    check(DRIVER(cuModuleGetFunction)(function, module, name), name);
  return known.emplace(gpu, made).first->second;
}

// On the GPU where `out` lies.
template <typename... Given>
void start(CUfunction Kernels::*kernel, const Tensor &out, int64_t blocks, unsigned threads, Given... given) {
  static auto *launch = DRIVER(cuLaunchKernel);
  c10::DeviceGuard guard(out.device());
  auto function = kernels(out.device().index(), nullptr).*kernel;
  void *arguments[] = {&given...};
  auto stream = c10::cuda::getCurrentCUDAStream().stream();
  check(launch(function, static_cast<unsigned>(blocks), 1, 1, threads, 1, 1, 0, stream, arguments, nullptr),
        "cuLaunchKernel");
}

// The address of what a kernel takes as it lies.
template <typename T> T *lies(const Tensor &tensor, at::ScalarType type, at::IntArrayRef sizes) {
  TORCH_CHECK(tensor.is_cuda() && tensor.scalar_type() == type && tensor.is_contiguous() && tensor.sizes() == sizes,
              "a kernel takes ", type, " of ", sizes, " and was given ", tensor.scalar_type(), " of ",
              tensor.sizes());
  return static_cast<T *>(tensor.data_ptr());
}

int whole(int64_t number) {
  TORCH_CHECK(number >= 0 && number <= INT32_MAX, number, " is too large for a kernel");
  return static_cast<int>(number);
}

using Half = uint16_t;
constexpr unsigned THREADS = 128;
constexpr unsigned DRAWING = 256;

#endif

} // namespace

extern "C" {

#ifdef WARPWRIGHT_CUDA

// Bytes that the kernels are for a compute capability; needs no GPU.
int warpwright_kernels_compile(const char *source, int capability, size_t *bytes) {
  return warpwright_guarded([&] { *bytes = compiled(source, capability).size(); });
}

// Makes the kernels ready on a GPU.
int warpwright_kernels_load(int gpu, const char *source) {
  return warpwright_guarded([&] { kernels(gpu, source); });
}

// stream: float32 [rows, width], to which `added`, bfloat16, is added unless it is null; `weight`: float32 [width].
int warpwright_add_norm(const Tensor *stream, const Tensor *added, const Tensor *weight, double epsilon, Tensor *out) {
  return warpwright_guarded([&] {
    auto rows = stream->size(0), width = stream->size(1);
    Tensor normed = at::empty({rows, width}, stream->options().dtype(at::kBFloat16));
    auto *plus = added ? lies<const Half>(*added, at::kBFloat16, {rows, width}) : nullptr;
    start(&Kernels::add_norm, normed, rows, THREADS, lies<float>(*stream, at::kFloat, {rows, width}), plus,
          lies<const float>(*weight, at::kFloat, {width}), lies<Half>(normed, at::kBFloat16, {rows, width}),
          whole(width), static_cast<float>(epsilon));
    *out = normed;
  });
}

// all: bfloat16 [rows, (heads + 2 groups) width]; norms: float32 [heads + groups, width]; cosines and sines:
// float32 [all positions, width]; positions, some of these: float64 [rows]; keys and values: bfloat16 [rows, room,
// groups, width]. Gives queries: [rows, heads, width].
int warpwright_turn_keep(const Tensor *all, const Tensor *norms, const Tensor *cosines, const Tensor *sines,
                         const Tensor *positions, const Tensor *keys, const Tensor *values, double epsilon, Tensor *out) {
  return warpwright_guarded([&] {
    TORCH_CHECK(keys->dim() == 4, "keys have four dimensions");
    auto rows = keys->size(0), room = keys->size(1), groups = keys->size(2), width = keys->size(3);
    auto heads = norms->size(0) - groups, total = heads + 2 * groups, known = cosines->size(0);
    TORCH_CHECK(heads > 0 && width % 2 == 0, "heads are missing, or cannot turn");
    Tensor queries = at::empty({rows, heads, width}, all->options());
    auto kept = keys->sizes();
    start(&Kernels::turn_keep, queries, (rows * total + 3) / 4, THREADS,
          lies<const Half>(*all, at::kBFloat16, {rows, total * width}),
          lies<const float>(*norms, at::kFloat, {heads + groups, width}),
          lies<const float>(*cosines, at::kFloat, {known, width}), lies<const float>(*sines, at::kFloat, {known, width}),
          lies<const double>(*positions, at::kDouble, {rows}), lies<Half>(queries, at::kBFloat16, {rows, heads, width}),
          lies<Half>(*keys, at::kBFloat16, kept), lies<Half>(*values, at::kBFloat16, kept), whole(rows), whole(heads),
          whole(groups), whole(width), whole(room), static_cast<float>(epsilon));
    *out = queries;
  });
}

// both: bfloat16 [rows, 2 inner]. Gives silu of the first half times the second.
int warpwright_gate(const Tensor *both, Tensor *out) {
  return warpwright_guarded([&] {
    auto rows = both->size(0), inner = both->size(1) / 2, count = rows * inner;
    Tensor gated = at::empty({rows, inner}, both->options());
    start(&Kernels::gate, gated, (count + DRAWING - 1) / DRAWING, DRAWING,
          lies<const Half>(*both, at::kBFloat16, {rows, 2 * inner}), lies<Half>(gated, at::kBFloat16, {rows, inner}),
          static_cast<long long>(count), whole(inner));
    *out = gated;
  });
}

// logits: bfloat16 [rows, words]; chances: float64 [rows]. Gives ids, and logarithms of probabilities: float64
// [2, rows].
int warpwright_choose(const Tensor *logits, const Tensor *chances, double temperature, double top_p, Tensor *out) {
  return warpwright_guarded([&] {
    auto rows = logits->size(0), words = logits->size(1);
    Tensor drawn = at::empty({2, rows}, chances->options());
    start(&Kernels::choose, drawn, rows, DRAWING, lies<const Half>(*logits, at::kBFloat16, {rows, words}),
          lies<const double>(*chances, at::kDouble, {rows}), lies<double>(drawn, at::kDouble, {2, rows}), whole(rows),
          whole(words), static_cast<float>(temperature), static_cast<float>(top_p));
    *out = drawn;
  });
}

#else

static int without_cuda() {
  return warpwright_guarded([] { TORCH_CHECK(false, "built against a libtorch without CUDA"); });
}

int warpwright_kernels_compile(const char *, int, size_t *) { return without_cuda(); }
int warpwright_kernels_load(int, const char *) { return without_cuda(); }
int warpwright_add_norm(const Tensor *, const Tensor *, const Tensor *, double, Tensor *) { return without_cuda(); }
int warpwright_turn_keep(const Tensor *, const Tensor *, const Tensor *, const Tensor *, const Tensor *, const Tensor *,
                         const Tensor *, double, Tensor *) {
  return without_cuda();
}
int warpwright_gate(const Tensor *, Tensor *) { return without_cuda(); }
int warpwright_choose(const Tensor *, const Tensor *, double, double, Tensor *) { return without_cuda(); }

#endif
}
