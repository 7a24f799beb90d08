// Compiles the kernels for the GPU and launches them.
#include "kernels.h"
#include <array>
#include <dlfcn.h>
#include <string>
#ifdef WARPWRIGHT_CUDA
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <map>
#include <mutex>
#include <nvrtc.h>
#endif

namespace {

using warpwright::Kernel;

// In the order of `Kernel`.
constexpr std::array<const char *, 10> NAMES = {"add_norm",  "add_norm_back", "turn",            "turn_back", "gate",
                                                "gate_back", "likelihood",    "likelihood_back", "choose",    "attend"};

using OnHost = void (*)(unsigned blocks, unsigned threads, unsigned shared_bytes, void **arguments);

// Of the library given for tests.
std::array<OnHost, NAMES.size()> on_host = {};

#ifdef WARPWRIGHT_CUDA

// Loaded lazily: a host without a GPU has no driver.
template <typename F> F *named(void *library, const char *name) {
  auto *found = library ? dlsym(library, name) : nullptr;
  TORCH_CHECK(found, name, " was not found: ", library ? "" : dlerror());
  return reinterpret_cast<F *>(found);
}

// NVRTC as pip installs it next to torch. It looks for its own parts by name only, so they are
// loaded first.
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
  TORCH_CHECK(library, "NVRTC was not found: pip installs it with torch for CUDA. Without it, `engine.fused_kernels = false` "
                       "in a configuration uses torch's kernels");
  return library;
}

void *driver() {
  static void *library = dlopen("libcuda.so.1", RTLD_LAZY);
  return library;
}

void check(CUresult result, const char *what) { TORCH_CHECK(result == CUDA_SUCCESS, what, " failed: CUDA error ", int(result)); }

#define DRIVER(name) named<decltype(name)>(driver(), #name)
#define NVRTC(name) named<decltype(name)>(nvrtc(), #name)

// The cubin for a GPU of this compute capability: 90 for 9.0.
std::string compiled(const char *source, int capability) {
  nvrtcProgram program = nullptr;
  TORCH_CHECK(NVRTC(nvrtcCreateProgram)(&program, source, "kernels.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS,
              "NVRTC refuses the program");
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
  TORCH_CHECK(result == NVRTC_SUCCESS, "the kernels failed to compile for sm_", capability, ": ", binary.c_str());
  return binary;
}

struct Loaded {
  std::array<CUfunction, NAMES.size()> functions;
  // Torch's context of that GPU.
  CUcontext context;
};

// Per GPU: compiled once.
const Loaded &loaded(int gpu, const char *source) {
  static std::mutex mutex;
  static std::map<int, Loaded> known;
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
  // Makes torch's context current in this thread.
  c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)));
  c10::cuda::device_synchronize();
  CUmodule module;
  check(DRIVER(cuModuleLoadData)(&module, binary.data()), "cuModuleLoadData");
  Loaded made{};
  check(DRIVER(cuCtxGetCurrent)(&made.context), "cuCtxGetCurrent");
  for (size_t i = 0; i < NAMES.size(); i++)
    check(DRIVER(cuModuleGetFunction)(&made.functions[i], module, NAMES[i]), NAMES[i]);
  return known.emplace(gpu, made).first->second;
}

#endif

} // namespace

void warpwright::launch(Kernel kernel, const at::Tensor &on, int64_t blocks, unsigned threads, unsigned shared_bytes,
                        void **arguments) {
  auto number = static_cast<size_t>(kernel);
  auto count = static_cast<unsigned>(whole(blocks));
  if (on.is_cpu()) {
    TORCH_CHECK(on_host[number], "the kernel has no host version");
    return on_host[number](count, threads, shared_bytes, arguments);
  }
#ifdef WARPWRIGHT_CUDA
  static auto *launch = DRIVER(cuLaunchKernel);
  c10::DeviceGuard guard(on.device());
  const auto &[functions, context] = loaded(on.device().index(), nullptr);
  // An autograd thread may not have used the CUDA runtime yet.
  static auto *current = DRIVER(cuCtxGetCurrent);
  CUcontext found = nullptr;
  check(current(&found), "cuCtxGetCurrent");
  if (found != context)
    check(DRIVER(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  auto stream = c10::cuda::getCurrentCUDAStream().stream();
  check(launch(functions[number], count, 1, 1, threads, 1, 1, shared_bytes, stream, arguments, nullptr), NAMES[number]);
#else
  TORCH_CHECK(false, "built against a libtorch without CUDA");
#endif
}

extern "C" {

// Runs on host tensors with a library that has a `host_NAME` per kernel.
int warpwright_kernels_on_host(const char *library) {
  return warpwright_guarded([&] {
    void *opened = dlopen(library, RTLD_NOW);
    TORCH_CHECK(opened, dlerror());
    for (size_t i = 0; i < NAMES.size(); i++) {
      void *found = dlsym(opened, (std::string("host_") + NAMES[i]).c_str());
      TORCH_CHECK(found, library, " has no host_", NAMES[i]);
      on_host[i] = reinterpret_cast<OnHost>(found);
    }
  });
}

#ifdef WARPWRIGHT_CUDA

// Size of the kernels' cubin for a compute capability, in bytes; needs no GPU.
int warpwright_kernels_compile(const char *source, int capability, size_t *bytes) {
  return warpwright_guarded([&] { *bytes = compiled(source, capability).size(); });
}

// Loads the kernels on a GPU.
int warpwright_kernels_load(int gpu, const char *source) {
  return warpwright_guarded([&] { loaded(gpu, source); });
}

#else

static int without_cuda() {
  return warpwright_guarded([] { TORCH_CHECK(false, "built against a libtorch without CUDA"); });
}

int warpwright_kernels_compile(const char *, int, size_t *) { return without_cuda(); }
int warpwright_kernels_load(int, const char *) { return without_cuda(); }

#endif
}
