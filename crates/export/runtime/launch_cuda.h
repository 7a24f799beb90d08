// Launches of a GPU by the CUDA driver, and products of cuBLAS. Both libraries are found at run time, as torch has
// loaded them; their types are declared here, so no toolkit is needed to compile this.
#pragma once
#include "launch_common.h"

using WwHandle = void*;
using WwAddress = unsigned long long;

// CUlaunchAttribute: of the attributes that plans have, each value is a few words at the start of a union of 64 bytes.
struct alignas(8) WwAttribute {
  unsigned id, padding;
  unsigned value[16];
};
// CUlaunchConfig
struct WwConfig {
  unsigned grid[3], block[3], shared;
  WwHandle stream;
  const WwAttribute* attributes;
  unsigned count;
};
// One side of CUDA_MEMCPY2D, and all of it.
struct WwRows {
  size_t x_bytes, y;
  int kind;
  const void* host;
  WwAddress device;
  WwHandle array;
  size_t pitch;
};
struct WwCopyRows {
  WwRows from, to;
  size_t width, height;
};
static_assert(sizeof(WwAttribute) == 72 && sizeof(WwConfig) == 56, "as in cuda.h");
static_assert(sizeof(WwRows) == 56 && sizeof(WwCopyRows) == 128, "as in cuda.h");

#define WW_DRIVER(X)                                                                                                 \
  X(context, "cuCtxGetCurrent", int, (WwHandle*))                                                                    \
  X(context_set, "cuCtxSetCurrent", int, (WwHandle))                                                                 \
  X(context_primary, "cuDevicePrimaryCtxRetain", int, (WwHandle*, int))                                              \
  X(module_load, "cuModuleLoadData", int, (WwHandle*, const void*))                                                  \
  X(module_unload, "cuModuleUnload", int, (WwHandle))                                                                \
  X(module_function, "cuModuleGetFunction", int, (WwHandle*, WwHandle, const char*))                                 \
  X(module_global, "cuModuleGetGlobal_v2", int, (WwAddress*, size_t*, WwHandle, const char*))                        \
  X(function_set, "cuFuncSetAttribute", int, (WwHandle, int, int))                                                   \
  X(stream_create, "cuStreamCreate", int, (WwHandle*, unsigned))                                                     \
  X(stream_destroy, "cuStreamDestroy_v2", int, (WwHandle))                                                           \
  X(stream_wait, "cuStreamWaitEvent", int, (WwHandle, WwHandle, unsigned))                                           \
  X(stream_capturing, "cuStreamIsCapturing", int, (WwHandle, int*))                                                  \
  X(event_create, "cuEventCreate", int, (WwHandle*, unsigned))                                                       \
  X(event_destroy, "cuEventDestroy_v2", int, (WwHandle))                                                             \
  X(event_record, "cuEventRecord", int, (WwHandle, WwHandle))                                                        \
  X(launch, "cuLaunchKernelEx", int, (const WwConfig*, WwHandle, void**, void**))                                    \
  X(fill8, "cuMemsetD2D8Async", int, (WwAddress, size_t, unsigned char, size_t, size_t, WwHandle))                   \
  X(fill16, "cuMemsetD2D16Async", int, (WwAddress, size_t, unsigned short, size_t, size_t, WwHandle))                \
  X(fill32, "cuMemsetD2D32Async", int, (WwAddress, size_t, unsigned, size_t, size_t, WwHandle))                      \
  X(copy, "cuMemcpyDtoDAsync_v2", int, (WwAddress, WwAddress, size_t, WwHandle))                                     \
  X(copy_rows, "cuMemcpy2DAsync_v2", int, (const WwCopyRows*, WwHandle))                                             \
  X(upload, "cuMemcpyHtoDAsync_v2", int, (WwAddress, const void*, size_t, WwHandle))                                 \
  X(encode_tiled, "cuTensorMapEncodeTiled", int,                                                                     \
    (void*, unsigned, unsigned, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*, unsigned, \
     unsigned, unsigned, unsigned))

#define WW_BLAS(X)                                                                                                 \
  X(create, "cublasCreate_v2", int, (WwHandle*))                                                                   \
  X(destroy, "cublasDestroy_v2", int, (WwHandle))                                                                  \
  X(set_stream, "cublasSetStream_v2", int, (WwHandle, WwHandle))                                                   \
  X(set_workspace, "cublasSetWorkspace_v2", int, (WwHandle, void*, size_t))                                        \
  X(set_math, "cublasSetMathMode", int, (WwHandle, int))                                                           \
  X(gemm, "cublasGemmEx", int,                                                                                     \
    (WwHandle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,    \
     void*, int, int, int, int))                                                                                   \
  X(gemm_batched, "cublasGemmStridedBatchedEx", int,                                                               \
    (WwHandle, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int,      \
     long long, const void*, void*, int, int, long long, int, int, int))                                           \
  X(gemm_pointers, "cublasGemmBatchedEx", int,                                                                     \
    (WwHandle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,    \
     void*, int, int, int, int, int))                                                                              \
  X(gemv_float, "cublasSgemvStridedBatched", int,                                                                  \
    (WwHandle, int, int, int, const void*, const void*, int, long long, const void*, int, long long, const void*,  \
     void*, int, long long, int))                                                                                  \
  X(gemv_double, "cublasDgemvStridedBatched", int,                                                                 \
    (WwHandle, int, int, int, const void*, const void*, int, long long, const void*, int, long long, const void*,  \
     void*, int, long long, int))                                                                                  \
  X(gemv_float_alone, "cublasSgemv_v2", int,                                                                       \
    (WwHandle, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int))           \
  X(gemv_double_alone, "cublasDgemv_v2", int,                                                                      \
    (WwHandle, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int))

#define WW_FIELD(name, symbol, result, arguments) result(*name) arguments;
struct WwDriver {
  WW_DRIVER(WW_FIELD)
};
struct WwBlas {
  WW_BLAS(WW_FIELD)
};
#undef WW_FIELD

static WwDriver ww_driver;
static WwBlas ww_blas;

// A library that the process has loaded, else one that the loader finds.
static void* ww_library(const char* const* names) {
  for (int pass = 0; pass < 2; ++pass)
    for (const char* const* name = names; *name; ++name)
      if (void* found = dlopen(*name, RTLD_NOW | (pass ? 0 : RTLD_NOLOAD))) return found;
  return nullptr;
}

#define WW_RESOLVE(name, symbol, result, arguments)                              \
  if (!(table.name = reinterpret_cast<result(*) arguments>(dlsym(from, symbol)))) \
    return ww_fail("a library lacks " symbol, -1);
static int ww_resolve(WwDriver& table, void* from) {
  WW_DRIVER(WW_RESOLVE)
  return 0;
}
static int ww_resolve(WwBlas& table, void* from) {
  WW_BLAS(WW_RESOLVE)
  return 0;
}
#undef WW_RESOLVE

constexpr int kWwUnset = -2147483647 - 1;
struct WwKernel {
  uint32_t module;
  const char* name;
  int max_dynamic_shared, shared_carveout;  // or kWwUnset
  bool nonportable_cluster;
};
struct WwSymbol {
  uint32_t module;
  const char* name;
};
struct WwPlan {
  uint32_t modules;
  const WwKernel* kernels;
  uint32_t kernel_count;
  const WwSymbol* symbols;
  uint32_t symbol_count;
  uint32_t streams;  // with the caller's
  uint32_t events;   // between operations
  bool products;
};
constexpr size_t kWwWorkspace = size_t{32} << 20;  // of cuBLAS, per stream

struct WwState {
  WwPlan plan;
  WwHandle *modules, *kernels;
  char** symbols;
  WwHandle* streams;  // [0] is the caller's, in a call
  WwHandle* events;   // the call's begin, the ends of the other streams, and those between operations
  WwHandle* blas;     // one per stream
  WwHandle context;
  bool capturing;
};

static inline uint32_t ww_events(const WwPlan& plan) { return plan.streams + plan.events; }

#define WW_TRY(what, call)                          \
  do {                                              \
    const int ww_code = (call);                     \
    if (ww_code != 0) return ww_fail(what, ww_code); \
  } while (0)

static int ww_load(WwState& state, const WwImage* images) {
  const WwPlan& plan = state.plan;
  for (uint32_t index = 0; index < plan.modules; ++index)
    WW_TRY("failed to load device code", ww_driver.module_load(&state.modules[index], images[index].bytes));
  for (uint32_t index = 0; index < plan.kernel_count; ++index) {
    const WwKernel& kernel = plan.kernels[index];
    WW_TRY("failed to find a kernel",
           ww_driver.module_function(&state.kernels[index], state.modules[kernel.module], kernel.name));
    WwHandle function = state.kernels[index];
    if (kernel.max_dynamic_shared != kWwUnset)
      WW_TRY("failed to reserve shared memory", ww_driver.function_set(function, 8, kernel.max_dynamic_shared));
    if (kernel.shared_carveout != kWwUnset)
      WW_TRY("failed to set the carveout", ww_driver.function_set(function, 9, kernel.shared_carveout));
    if (kernel.nonportable_cluster)
      WW_TRY("failed to allow a cluster", ww_driver.function_set(function, 14, 1));
  }
  for (uint32_t index = 0; index < plan.symbol_count; ++index) {
    WwAddress at = 0;
    size_t bytes = 0;
    const WwSymbol& symbol = plan.symbols[index];
    WW_TRY("failed to find a variable",
           ww_driver.module_global(&at, &bytes, state.modules[symbol.module], symbol.name));
    state.symbols[index] = reinterpret_cast<char*>(static_cast<uintptr_t>(at));
  }
  for (uint32_t index = 1; index < plan.streams; ++index)
    WW_TRY("failed to create a stream", ww_driver.stream_create(&state.streams[index], 1));
  for (uint32_t index = 0; index < ww_events(plan); ++index)
    WW_TRY("failed to create an event", ww_driver.event_create(&state.events[index], 2));
  if (plan.products)
    for (uint32_t index = 0; index < plan.streams; ++index)
      WW_TRY("failed to create a handle of cuBLAS", ww_blas.create(&state.blas[index]));
  return 0;
}

static void ww_close_plan(WwState* state) {
  const WwPlan& plan = state->plan;
  if (plan.products)
    for (uint32_t index = 0; index < plan.streams; ++index)
      if (state->blas[index]) ww_blas.destroy(state->blas[index]);
  for (uint32_t index = 0; index < ww_events(plan); ++index)
    if (state->events[index]) ww_driver.event_destroy(state->events[index]);
  for (uint32_t index = 1; index < plan.streams; ++index)
    if (state->streams[index]) ww_driver.stream_destroy(state->streams[index]);
  for (uint32_t index = 0; index < plan.modules; ++index)
    if (state->modules[index]) ww_driver.module_unload(state->modules[index]);
  delete[] state->modules;
  delete[] state->kernels;
  delete[] state->symbols;
  delete[] state->streams;
  delete[] state->events;
  delete[] state->blas;
  delete state;
}

// A host thread has no context before it has called the runtime; it then uses device 0.
static int ww_context(WwHandle* context) {
  WW_TRY("failed to look at the context", ww_driver.context(context));
  if (*context) return 0;
  WW_TRY("failed to retain the primary context", ww_driver.context_primary(context, 0));
  WW_TRY("failed to set the context", ww_driver.context_set(*context));
  return 0;
}

static int ww_open_plan(const WwPlan& plan, const WwImage* images, WwState** made) {
  static const char* const driver[] = {"libcuda.so.1", nullptr};
  static const char* const blas[] = {"libcublas.so.13", "libcublas.so.12", nullptr};
  void* library = ww_library(driver);
  if (!library) return ww_fail("there is no CUDA driver (libcuda.so.1)", -1);
  if (const int code = ww_resolve(ww_driver, library)) return code;
  if (plan.products) {
    library = ww_library(blas);
    if (!library) return ww_fail("there is no cuBLAS 12 or 13", -1);
    if (const int code = ww_resolve(ww_blas, library)) return code;
  }
  WwHandle context = nullptr;
  if (const int code = ww_context(&context)) return code;
  WwState* state = new WwState{plan,
                               new WwHandle[plan.modules + 1]{},
                               new WwHandle[plan.kernel_count + 1]{},
                               new char*[plan.symbol_count + 1]{},
                               new WwHandle[plan.streams + 1]{},
                               new WwHandle[ww_events(plan) + 1]{},
                               new WwHandle[plan.streams + 1]{},
                               context,
                               false};
  if (const int code = ww_load(*state, images)) {
    ww_close_plan(state);
    return code;
  }
  *made = state;
  return 0;
}

// A call begins and ends in the caller's stream: the others wait for its begin, and its end waits for them.
static inline int ww_begin(WwState& state, const WwCall& call) {
  state.streams[0] = call.stream;
  WwHandle context = nullptr;
  WW_TRY("failed to look at the context", ww_driver.context(&context));
  // Of a thread that is new.
  if (!context) WW_TRY("failed to set the context", ww_driver.context_set(state.context));
  int status = 0;
  WW_TRY("failed to look at the stream", ww_driver.stream_capturing(call.stream, &status));
  state.capturing = status != 0;
  if (state.plan.streams > 1) WW_TRY("failed to record an event", ww_driver.event_record(state.events[0], call.stream));
  for (uint32_t index = 1; index < state.plan.streams; ++index)
    WW_TRY("failed to wait for an event", ww_driver.stream_wait(state.streams[index], state.events[0], 0));
  return 0;
}
static inline int ww_end(WwState& state) {
  for (uint32_t index = 1; index < state.plan.streams; ++index) {
    WW_TRY("failed to record an event", ww_driver.event_record(state.events[index], state.streams[index]));
    WW_TRY("failed to wait for an event", ww_driver.stream_wait(state.streams[0], state.events[index], 0));
  }
  return 0;
}
static inline int ww_wait(const WwState& state, uint32_t stream, uint32_t event) {
  WW_TRY("failed to wait for an event",
         ww_driver.stream_wait(state.streams[stream], state.events[state.plan.streams + event], 0));
  return 0;
}
static inline int ww_record(const WwState& state, uint32_t stream, uint32_t event) {
  WW_TRY("failed to record an event",
         ww_driver.event_record(state.events[state.plan.streams + event], state.streams[stream]));
  return 0;
}

// Programmatic serialization is the last attribute, if it is one of them. It is left out of a captured graph: there,
// what follows a kernel does not wait for the kernel that it overlaps.
static inline int ww_launch(const WwState& state, uint32_t stream, uint32_t kernel, WwConfig config, bool programmatic,
                            void** args) {
  config.stream = state.streams[stream];
  if (programmatic && state.capturing) --config.count;
  WW_TRY("failed to launch a kernel", ww_driver.launch(&config, state.kernels[kernel], args, nullptr));
  return 0;
}

static inline WwAddress ww_address(const void* at) { return reinterpret_cast<uintptr_t>(at); }

static inline int ww_fill(const WwState& state, uint32_t stream, char* to, uint32_t value, uint32_t element,
                          uint64_t width, uint64_t height, uint64_t pitch) {
  if (width == 0 || height == 0) return 0;
  const WwAddress at = ww_address(to);
  WwHandle queue = state.streams[stream];
  if (height == 1) pitch = width * element;
  int code = 0;
  if (element == 1) code = ww_driver.fill8(at, pitch, static_cast<unsigned char>(value), width, height, queue);
  if (element == 2) code = ww_driver.fill16(at, pitch, static_cast<unsigned short>(value), width, height, queue);
  if (element == 4) code = ww_driver.fill32(at, pitch, value, width, height, queue);
  return code ? ww_fail("failed to fill memory", code) : 0;
}

static inline int ww_copy(const WwState& state, uint32_t stream, char* to, const char* from, uint64_t width,
                          uint64_t height, uint64_t to_pitch, uint64_t from_pitch) {
  if (width == 0 || height == 0) return 0;
  WwHandle queue = state.streams[stream];
  // CU_MEMORYTYPE_DEVICE
  const WwCopyRows rows = {{0, 0, 2, nullptr, ww_address(from), nullptr, from_pitch},
                           {0, 0, 2, nullptr, ww_address(to), nullptr, to_pitch},
                           width,
                           height};
  const int code = height == 1 ? ww_driver.copy(ww_address(to), ww_address(from), width, queue)
                               : ww_driver.copy_rows(&rows, queue);
  return code ? ww_fail("failed to copy memory", code) : 0;
}

// `lasting`: whether the bytes stay where they are, as a captured graph needs them.
static inline int ww_upload(const WwState& state, uint32_t stream, char* to, const void* from, uint64_t bytes,
                            bool lasting) {
  if (state.capturing && !lasting) return ww_fail("an upload with addresses cannot be captured in a graph", -1);
  WW_TRY("failed to upload bytes", ww_driver.upload(ww_address(to), from, bytes, state.streams[stream]));
  return 0;
}

struct WwTensorMap {
  unsigned dtype, rank;
  uint64_t dims[5], strides[5];
  uint32_t box[5], steps[5];
  unsigned interleave, swizzle, promotion, fill;
};
static inline int ww_encode(unsigned char* to, const WwTensorMap& map, char* at) {
  WW_TRY("failed to encode a tensor map",
         ww_driver.encode_tiled(to, map.dtype, map.rank, at, map.dims, map.strides, map.box, map.steps, map.interleave,
                                map.swizzle, map.promotion, map.fill));
  return 0;
}

struct WwGemm {
  int transpose[2], sizes[3], types[3], leading[3];
  long long strides[3];
  int batch;
  uint64_t alpha[2], beta[2];
  int compute, math, algorithm;
  bool pointers;
};
static inline int ww_blas_ready(const WwState& state, uint32_t stream, char* library, int math) {
  WwHandle handle = state.blas[stream];
  // The stream resets the workspace, so it is set first.
  WW_TRY("failed to give cuBLAS a stream", ww_blas.set_stream(handle, state.streams[stream]));
  WW_TRY("failed to give cuBLAS a workspace",
         ww_blas.set_workspace(handle, library + stream * kWwWorkspace, kWwWorkspace));
  WW_TRY("failed to set cuBLAS's math mode", ww_blas.set_math(handle, math));
  return 0;
}
static inline int ww_gemm(const WwState& state, uint32_t stream, char* library, const WwGemm& g, char* a, char* b,
                          char* c) {
  if (const int code = ww_blas_ready(state, stream, library, g.math)) return code;
  WwHandle handle = state.blas[stream];
  const int *t = g.transpose, *s = g.sizes, *ty = g.types, *ld = g.leading;
  int code;
  if (g.pointers)
    code = ww_blas.gemm_pointers(handle, t[0], t[1], s[0], s[1], s[2], g.alpha, a, ty[0], ld[0], b, ty[1], ld[1],
                                 g.beta, c, ty[2], ld[2], g.batch, g.compute, g.algorithm);
  else if (g.batch == 1)
    code = ww_blas.gemm(handle, t[0], t[1], s[0], s[1], s[2], g.alpha, a, ty[0], ld[0], b, ty[1], ld[1], g.beta, c,
                        ty[2], ld[2], g.compute, g.algorithm);
  else
    code = ww_blas.gemm_batched(handle, t[0], t[1], s[0], s[1], s[2], g.alpha, a, ty[0], ld[0], g.strides[0], b, ty[1],
                                ld[1], g.strides[1], g.beta, c, ty[2], ld[2], g.strides[2], g.batch, g.compute,
                                g.algorithm);
  return code ? ww_fail("failed to multiply matrices", code) : 0;
}

struct WwGemv {
  int transpose, sizes[2], leading, steps[2];
  long long strides[3];
  int batch;
  bool is_double;
  uint64_t alpha[2], beta[2];
  int math;
};
static inline int ww_gemv(const WwState& state, uint32_t stream, char* library, const WwGemv& g, char* matrix,
                          char* vector, char* result) {
  if (const int code = ww_blas_ready(state, stream, library, g.math)) return code;
  WwHandle handle = state.blas[stream];
  int code;
  if (g.batch == 1)
    code = (g.is_double ? ww_blas.gemv_double_alone : ww_blas.gemv_float_alone)(
        handle, g.transpose, g.sizes[0], g.sizes[1], g.alpha, matrix, g.leading, vector, g.steps[0], g.beta, result,
        g.steps[1]);
  else
    code = (g.is_double ? ww_blas.gemv_double : ww_blas.gemv_float)(
        handle, g.transpose, g.sizes[0], g.sizes[1], g.alpha, matrix, g.leading, g.strides[0], vector, g.steps[0],
        g.strides[1], g.beta, result, g.steps[1], g.strides[2], g.batch);
  return code ? ww_fail("failed to multiply a matrix and a vector", code) : 0;
}
