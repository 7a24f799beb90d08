// What a process without a device hears instead of running it. The recorder that a host program hands
// to `hostcuda_set_recorder` is told of every launch, fill, copy, product and allocation, in program
// order, and nothing is computed. Another process runs the launches later: each instantiation of
// `launch` has an `Entry` in the library's data, which is found by its offset in the library's image.
//
// The structures are plain C with fixed sizes, so that recorders and replayers in other languages can
// declare them again. They change only together with `kRecorderVersion`.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hostcuda {
constexpr uint32_t kRecorderVersion = 1;
constexpr uint64_t kEntryMagic = 0x315952544e454348;  // "HCENTRY1" as bytes

struct Geometry {
  uint32_t grid[3], block[3];
  uint64_t shared;  // bytes of dynamic shared memory per block
};

// One instantiation of `launch`. The bytes of each argument follow, as `count` numbers of 32 bits.
struct Entry {
  uint64_t magic;
  // Runs the launch over this process's team of threads; `arguments` has the address of each. Returns
  // what the launch came to, as a cudaError_t.
  int (*run)(const Geometry*, const void* const* arguments);
  uint64_t count;
};
static_assert(sizeof(Geometry) == 32 && sizeof(Entry) == 24, "part of the interface");

struct Argument {
  const void* at;
  uint64_t bytes;
};
struct LaunchCall {
  const char* name;  // the kernel as the source spells it; "" if the runtime was called
  const Entry* entry;
  Geometry geometry;
  const void* stream;
  const Argument* arguments;
  uint64_t count;
};
// Sets `height` rows of `width` elements, whose value is in the low `element` bytes of `value`.
struct FillCall {
  void* to;
  uint64_t pitch, width, height;  // pitch: bytes from row to row
  uint32_t value, element;
  const void* stream;
};
// Copies `height` rows of `width` bytes. Either side may be memory of the host, of the device, or a
// variable of a library; `kind` is what the caller says of it, a cudaMemcpyKind.
struct CopyCall {
  void* to;
  const void* from;
  uint64_t to_pitch, from_pitch, width, height;
  int32_t kind, reserved;
  const void* stream;
};
// cublasGemmStridedBatchedEx and its special cases, which a replayer computes by that function of
// cublas_v2.h. Types are numbers of cudaDataType_t; the factors are of type `scalar`, and still where
// the caller has them.
struct GemmCall {
  int32_t transpose[2];
  int64_t sizes[3];  // rows of C, columns of C, length of the sums
  const void *a, *b;
  void* c;
  uint32_t types[3], scalar;
  int64_t leading[3], strides[3];
  const void *alpha, *beta;
  uint32_t batch, compute, math;
  int32_t algorithm;
  const void* stream;
};

// Every function returns a cudaError_t, which becomes the result of the call that it hears of.
struct Recorder {
  uint32_t version;  // kRecorderVersion
  uint32_t bytes;    // sizeof(Recorder)
  void* context;     // the first argument of each function
  int (*launch)(void* context, const LaunchCall*);
  int (*fill)(void* context, const FillCall*);
  int (*copy)(void* context, const CopyCall*);
  int (*gemm)(void* context, const GemmCall*);
  int (*allocate)(void* context, void** to, uint64_t bytes);
  int (*release)(void* context, void* at);
  // Something was asked that no recording can hold; `what` names it.
  int (*refuse)(void* context, const char* what);
};
static_assert(sizeof(LaunchCall) == 72 && sizeof(FillCall) == 48 && sizeof(CopyCall) == 64, "part of the interface");
static_assert(sizeof(GemmCall) == 160 && sizeof(Recorder) == 72, "part of the interface");

// Null while launches run.
__attribute__((visibility("hidden"))) inline const Recorder* recorder = nullptr;
inline bool recording() { return __builtin_expect(recorder != nullptr, 0); }
}  // namespace hostcuda

// Installs a recorder in this library, or none if it is null. The recorder must outlive its use. Returns
// 0, or 1 for one of another version. A candidate that defines this function is refused by the builder;
// one that calls it spoils only its own recording.
extern "C" __attribute__((weak, used, visibility("default"))) int hostcuda_set_recorder(const hostcuda::Recorder* r) {
  if (r && (r->version != hostcuda::kRecorderVersion || r->bytes != sizeof(hostcuda::Recorder))) return 1;
  hostcuda::recorder = r;
  return 0;
}
