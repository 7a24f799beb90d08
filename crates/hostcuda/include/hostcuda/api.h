// The host API. Everything is synchronous: streams and events have no state of their own, except
// that an event remembers when it was recorded. What touches memory of the device asks the recorder,
// if there is one, in the order of the program, which is an order that streams and events allow.
#pragma once
#include <chrono>

#include "hostcuda/launch.h"

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxL1 = 0, cudaSharedmemCarveoutMaxShared = 100 };
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxBlockDimX = 2,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
constexpr unsigned cudaStreamNonBlocking = 1, cudaStreamDefault = 0, cudaEventDefault = 0, cudaEventDisableTiming = 2,
                   cudaHostAllocDefault = 0;
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor, totalConstMem;
  int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor,
      maxBlocksPerMultiProcessor, maxThreadsDim[3], maxGridSize[3], multiProcessorCount, major, minor, l2CacheSize,
      clockRate, memoryClockRate, memoryBusWidth, concurrentKernels, cooperativeLaunch, integrated;
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, maxDynamicSharedSizeBytes;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};

static inline cudaError_t cudaGetLastError() {
  cudaError_t e = hostcuda::last_error;
  hostcuda::last_error = cudaSuccess;
  return e;
}
static inline cudaError_t cudaPeekAtLastError() { return hostcuda::last_error; }
static inline const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    default: return "cudaErrorUnknown";
  }
}
static inline const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    default: return "unknown error";
  }
}
namespace hostcuda {
inline cudaError_t fail(cudaError_t e) { return last_error = e; }
inline cudaError_t told(int result) { return result ? fail((cudaError_t)result) : cudaSuccess; }
inline cudaError_t allocate_host(void** p, size_t n) {
  *p = n ? aligned_alloc(256, (n + 255) / 256 * 256) : nullptr;
  return n && !*p ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}
inline cudaError_t allocate(void** p, size_t n) {
  return recording() ? told(recorder->allocate(recorder->context, p, n)) : allocate_host(p, n);
}
inline cudaError_t release(void* p) {
  if (recording()) return told(recorder->release(recorder->context, p));
  return ::free(p), cudaSuccess;
}
inline cudaError_t fill(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (recording()) {
    const FillCall call = {to, bytes, bytes, 1, (unsigned char)value, 1, stream};
    return told(recorder->fill(recorder->context, &call));
  }
  return memset(to, value, bytes), cudaSuccess;
}
inline cudaError_t copy(const CopyCall& c) {
  if (recording()) return told(recorder->copy(recorder->context, &c));
  if (c.height == 1) return memmove(c.to, c.from, c.width), cudaSuccess;
  for (size_t i = 0; i < c.height; ++i) memmove((char*)c.to + i * c.to_pitch, (const char*)c.from + i * c.from_pitch, c.width);
  return cudaSuccess;
}
inline cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy(CopyCall{to, from, bytes, bytes, bytes, 1, kind, 0, stream});
}
}  // namespace hostcuda

static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
static inline cudaError_t cudaStreamCreate(cudaStream_t* s) { return *s = nullptr, cudaSuccess; }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return *s = nullptr, cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
static inline cudaError_t cudaEventCreate(cudaEvent_t* e) { return *e = new CUevent_st(), cudaSuccess; }
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
static inline cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
static inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t = nullptr) {
  e->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
static inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
static inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  if (hostcuda::recording()) return hostcuda::told(hostcuda::recorder->refuse(hostcuda::recorder->context, __func__));
  *ms = std::chrono::duration<float, std::milli>(b->at - a->at).count();
  return cudaSuccess;
}
template <class T>
inline cudaError_t cudaMalloc(T** p, size_t n) { return hostcuda::allocate((void**)p, n); }
template <class T>
inline cudaError_t cudaMallocAsync(T** p, size_t n, cudaStream_t) { return hostcuda::allocate((void**)p, n); }
template <class T>
inline cudaError_t cudaMallocHost(T** p, size_t n) { return hostcuda::allocate_host((void**)p, n); }
static inline cudaError_t cudaFree(void* p) { return hostcuda::release(p); }
static inline cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return hostcuda::release(p); }
static inline cudaError_t cudaFreeHost(void* p) { return free(p), cudaSuccess; }
static inline cudaError_t cudaMemset(void* p, int v, size_t n) { return hostcuda::fill(p, v, n, nullptr); }
static inline cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t s = nullptr) { return hostcuda::fill(p, v, n, s); }
static inline cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind k) { return hostcuda::copy(d, s, n, k, nullptr); }
static inline cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind k, cudaStream_t stream = nullptr) {
  return hostcuda::copy(d, s, n, k, stream);
}
static inline cudaError_t cudaMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t width, size_t height,
                                            cudaMemcpyKind k, cudaStream_t stream = nullptr) {
  return hostcuda::copy(hostcuda::CopyCall{d, s, dp, sp, width, height, k, 0, stream});
}
static inline cudaError_t cudaMemcpy2D(void* d, size_t dp, const void* s, size_t sp, size_t width, size_t height, cudaMemcpyKind k) {
  return cudaMemcpy2DAsync(d, dp, s, sp, width, height, k);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T& symbol, const void* s, size_t n, size_t offset = 0, cudaMemcpyKind k = cudaMemcpyHostToDevice) {
  if (offset + n > sizeof(T)) return hostcuda::fail(cudaErrorInvalidValue);
  return hostcuda::copy((char*)&symbol + offset, s, n, k, nullptr);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* s, size_t n, size_t offset, cudaMemcpyKind k, cudaStream_t = nullptr) {
  return cudaMemcpyToSymbol(symbol, s, n, offset, k);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void* d, const T& symbol, size_t n, size_t offset = 0, cudaMemcpyKind k = cudaMemcpyDeviceToHost) {
  if (offset + n > sizeof(T)) return hostcuda::fail(cudaErrorInvalidValue);
  return hostcuda::copy(d, (const char*)&symbol + offset, n, k, nullptr);
}
template <class T>
inline cudaError_t cudaGetSymbolAddress(void** p, T& symbol) { return *p = (void*)&symbol, cudaSuccess; }

static inline cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
static inline cudaError_t cudaSetDevice(int d) { return d == 0 ? cudaSuccess : hostcuda::fail(cudaErrorInvalidDevice); }
static inline cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
static inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) { return *free_bytes = *total = (size_t)8 << 30, cudaSuccess; }
static inline cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
  switch (a) {
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: *v = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = 48 << 10; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrMultiProcessorCount: *v = omp_get_max_threads(); break;
    case cudaDevAttrL2CacheSize: *v = 1 << 20; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = 2048; break;
    case cudaDevAttrComputeCapabilityMajor: *v = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *v = 0; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = 228 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 227 << 10; break;
    default: return hostcuda::fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = cudaDeviceProp{};
  strcpy(p->name, "cpu");
  p->totalGlobalMem = (size_t)8 << 30;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = 227 << 10;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->totalConstMem = 64 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->multiProcessorCount = omp_get_max_threads();
  p->major = 9;
  p->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
// Here a block may always use up to 227 KiB of dynamic shared memory; on a GPU the attribute is needed.
template <class K>
inline cudaError_t cudaFuncSetAttribute(K, cudaFuncAttribute a, int bytes) {
  bool bad = a == cudaFuncAttributeMaxDynamicSharedMemorySize && (bytes < 0 || (size_t)bytes > hostcuda::kMaxSharedBytes);
  return bad ? hostcuda::fail(cudaErrorInvalidValue) : cudaSuccess;
}
template <class K>
inline cudaError_t cudaFuncSetCacheConfig(K, cudaFuncCache) { return cudaSuccess; }
template <class K>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, K) {
  *a = cudaFuncAttributes{};
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->maxDynamicSharedSizeBytes = 227 << 10;
  return cudaSuccess;
}
template <class K>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, K, int threads, size_t) {
  *blocks = threads > 0 && threads <= 1024 ? (2048 / threads < 32 ? 2048 / threads : 32) : 0;
  return cudaSuccess;
}
template <class K>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, K k, int threads, size_t bytes, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, k, threads, bytes);
}
template <class K>
inline cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, K, int blocks, int) {
  *bytes = blocks > 0 ? (228u << 10) / blocks - 1024 : 0;
  return cudaSuccess;
}
template <class K, class Bytes>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, K, Bytes, int limit = 0) {
  *block = limit > 0 && limit < 256 ? limit : 256;
  *grid = omp_get_max_threads() * (2048 / *block);
  return cudaSuccess;
}
template <class K>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, K, size_t = 0, int limit = 0) {
  *block = limit > 0 && limit < 256 ? limit : 256;
  *grid = omp_get_max_threads() * (2048 / *block);
  return cudaSuccess;
}
static inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
static inline cudaError_t cudaRuntimeGetVersion(int* v) { return *v = 13000, cudaSuccess; }
static inline cudaError_t cudaDriverGetVersion(int* v) { return *v = 13000, cudaSuccess; }
