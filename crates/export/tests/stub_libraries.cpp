// Stands for the CUDA driver and for cuBLAS, and prints what generated launch code calls. With -DMAIN: the program that
// calls the launch code.
#include <cstdint>
#include <cstdio>
#include <cstring>

#ifndef MAIN
extern "C" {
static uintptr_t next_handle = 0x100;
static int made(void** to) {
  *to = reinterpret_cast<void*>(next_handle++);
  return 0;
}
static thread_local void* context = nullptr;
int cuCtxGetCurrent(void** c) { return *c = context, 0; }
int cuDevicePrimaryCtxRetain(void** c, int device) { return *c = (void*)0xc0, printf("retain %d\n", device), 0; }
int cuCtxSetCurrent(void* c) { return context = c, printf("context %zx\n", (size_t)c), 0; }
int cuModuleLoadData(void** m, const void* image) {
  printf("load %.5s\n", static_cast<const char*>(image));
  return made(m);
}
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** f, void*, const char* name) {
  printf("function %s\n", name);
  return made(f);
}
int cuModuleGetGlobal_v2(unsigned long long* at, size_t* bytes, void*, const char* name) {
  printf("variable %s\n", name);
  *at = 0x7000;
  *bytes = 64;
  return 0;
}
int cuFuncSetAttribute(void*, int attribute, int value) { return printf("attribute %d %d\n", attribute, value), 0; }
int cuStreamCreate(void** s, unsigned) { return made(s); }
int cuStreamDestroy_v2(void*) { return 0; }
int cuEventCreate(void** e, unsigned) { return made(e); }
int cuEventDestroy_v2(void*) { return 0; }
int cuStreamWaitEvent(void* s, void* e, unsigned) { return printf("wait %zx %zx\n", (size_t)s, (size_t)e), 0; }
int cuEventRecord(void* e, void* s) { return printf("record %zx %zx\n", (size_t)s, (size_t)e), 0; }
int cuStreamIsCapturing(void* s, int* status) { return *status = s == (void*)0x99, 0; }
struct Attribute {
  unsigned id, padding, value[16];
};
struct Config {
  unsigned grid[3], block[3], shared;
  void* stream;
  const Attribute* attributes;
  unsigned count;
};
int cuLaunchKernelEx(const Config* c, void* f, void** args, void** extra) {
  uint64_t first, second;
  memcpy(&first, args[0], 8);
  memcpy(&second, args[1], 8);
  printf("launch %zx in %zx grid %u %u %u block %u shared %u args %llx %llx", (size_t)f, (size_t)c->stream, c->grid[0],
         c->grid[1], c->grid[2], c->block[0], c->shared, (unsigned long long)first, (unsigned long long)second);
  for (unsigned i = 0; i < c->count; ++i) printf(" attribute %u %u", c->attributes[i].id, c->attributes[i].value[0]);
  printf("%s\n", extra ? " extra" : "");
  return 0;
}
int cuMemsetD2D8Async(unsigned long long at, size_t pitch, unsigned char value, size_t w, size_t h, void*) {
  return printf("fill8 %llx pitch %zu value %u %zux%zu\n", at, pitch, value, w, h), 0;
}
int cuMemsetD2D16Async(unsigned long long, size_t, unsigned short, size_t, size_t, void*) { return 0; }
int cuMemsetD2D32Async(unsigned long long at, size_t pitch, unsigned value, size_t w, size_t h, void*) {
  return printf("fill32 %llx pitch %zu value %u %zux%zu\n", at, pitch, value, w, h), 0;
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void*) {
  return printf("copy %llx from %llx %zu\n", to, from, bytes), 0;
}
struct Rows {
  size_t x, y;
  int kind;
  const void* host;
  unsigned long long device;
  void* array;
  size_t pitch;
};
struct CopyRows {
  Rows from, to;
  size_t width, height;
};
int cuMemcpy2DAsync_v2(const CopyRows* c, void*) {
  return printf("copy2d %llx pitch %zu from %llx pitch %zu %zux%zu kinds %d %d\n", c->to.device, c->to.pitch,
                c->from.device, c->from.pitch, c->width, c->height, c->from.kind, c->to.kind), 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void*) {
  uint64_t word = 0;
  memcpy(&word, from, bytes < 8 ? bytes : 8);
  return printf("upload %llx %zu first %llx\n", to, bytes, (unsigned long long)word), 0;
}
int cuTensorMapEncodeTiled(void* map, unsigned dtype, unsigned rank, void* at, const uint64_t* dims, const uint64_t*,
                           const uint32_t* box, const uint32_t*, unsigned, unsigned swizzle, unsigned, unsigned) {
  const uint64_t mark = 0xabcd;
  memcpy(map, &mark, 8);
  printf("encode %u rank %u at %zx dims %llu %llu box %u swizzle %u\n", dtype, rank, (size_t)at,
         (unsigned long long)dims[0], (unsigned long long)dims[1], box[0], swizzle);
  return (size_t)map % 64 ? 1 : 0;
}
int cublasCreate_v2(void** h) { return made(h); }
int cublasDestroy_v2(void*) { return 0; }
int cublasSetStream_v2(void*, void* s) { return printf("blas stream %zx\n", (size_t)s), 0; }
int cublasSetWorkspace_v2(void*, void* at, size_t bytes) { return printf("workspace %zx %zu\n", (size_t)at, bytes), 0; }
int cublasSetMathMode(void*, int math) { return printf("math %d\n", math), 0; }
int cublasGemmEx(void*, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int, int lda,
                 const void* b, int, int, const void* beta, void* c, int, int, int compute, int) {
  float one, zero;
  memcpy(&one, alpha, 4);
  memcpy(&zero, beta, 4);
  return printf("gemm %d%d %dx%dx%d alpha %g beta %g a %zx lda %d b %zx c %zx compute %d\n", ta, tb, m, n, k, one, zero,
                (size_t)a, lda, (size_t)b, (size_t)c, compute), 0;
}
int cublasGemmStridedBatchedEx(void*, int, int, int m, int n, int k, const void*, const void*, int, int, long long sa,
                               const void*, int, int, long long, const void*, void*, int, int, long long sc, int batch,
                               int, int) {
  return printf("gemms %dx%dx%d strides %lld %lld batch %d\n", m, n, k, sa, sc, batch), 0;
}
int cublasGemmBatchedEx() { return 1; }
int cublasSgemvStridedBatched() { return 1; }
int cublasDgemvStridedBatched() { return 1; }
int cublasDgemv_v2() { return 1; }
int cublasSgemv_v2(void*, int t, int m, int n, const void*, const void* a, int lda, const void* x, int step, const void*,
                   void* y, int) {
  return printf("gemv %d %dx%d a %zx lda %d x %zx step %d y %zx\n", t, m, n, (size_t)a, lda, (size_t)x, step, (size_t)y), 0;
}
}
#else
#include <dlfcn.h>

#include <initializer_list>
#include <thread>

#include "launch_common.h"

int main(int, char** argv) {
  void* code = dlopen(argv[1], RTLD_NOW);
  if (!code) return printf("%s\n", dlerror()), 1;
  auto open = reinterpret_cast<int (*)(const WwImage*, void**)>(dlsym(code, "ww_open"));
  auto error = reinterpret_cast<const char* (*)()>(dlsym(code, "ww_error"));
  auto close = reinterpret_cast<void (*)(void*)>(dlsym(code, "ww_close"));
  const WwImage images[] = {{"image", 5, nullptr}};
  void* state = nullptr;
  if (open(images, &state)) return printf("open: %s\n", error()), 1;
  void* inputs[] = {reinterpret_cast<void*>(0x1000)};
  void* weights[] = {reinterpret_cast<void*>(0x2000)};
  void* outputs[] = {reinterpret_cast<void*>(0x3000)};
  auto at = [](uintptr_t address) { return reinterpret_cast<char*>(address); };
  WwCall call = {nullptr, weights, nullptr, at(0x4000), at(0x5000), at(0x6000), at(0x9)};
  for (const char* phase : {"ww_prepare", "ww_forward", "ww_forward"}) {
    printf("%s\n", phase);
    auto run = reinterpret_cast<int (*)(void*, const WwCall*)>(dlsym(code, phase));
    auto once = [&] {
      if (run(state, &call)) printf("failed: %s\n", error());
    };
    // The captured call comes from a thread that has called nothing yet.
    if (call.stream == at(0x99)) std::thread(once).join();
    else once();
    if (call.inputs) call.stream = at(0x99);  // is being captured
    call.inputs = inputs;
    call.outputs = outputs;
  }
  close(state);
}
#endif
