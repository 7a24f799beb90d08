// A CUDA runtime without a device, preloaded into the recorder: what a candidate's host code asks of the
// device is written down. The candidate's code runs in the same process, so nothing here is a boundary: it
// only has to be right about honest code, and the judge believes none of it.
//
//   recorder_session     phases, refusals, and the answer of a process that ends early
//   recorder_memory      addresses that nobody can read, and open memory that the host may write
//   recorder_modules     fat binaries, kernels, variables, occupancy
//   recorder_timeline    the order that streams and events impose
//   recorder_streams     streams, events, captured graphs
//   recorder_launch, _transfer, _blas, _lt, _dnn, _tensormap    operations
//   recorder_device      questions about the device, errors
//   recorder_write       the recording as JSON
//
// On the cpu device, host_recorder stands for all of it but _session, _memory and _write.
#pragma once
#ifdef RECORDER_ON_HOST
#include "host_recorder.h"
#else
#include <cuda_runtime_api.h>
#endif

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace recorder __attribute__((visibility("hidden"))) {

// ---- recorder_session

// Values are part of the interface to Python.
enum class Phase { Idle, Init, Prepare, Inputs, First, Second };
constexpr int kPhases = 6;

Phase phase();
// Says why this cannot be recorded, and ends the process. Returns only outside a recording.
void refuse(const std::string& reason);
cudaError_t refused(const std::string& reason);
// Begins a function of the runtime. Refuses threads that the candidate started.
void enter(const char* function);
// A readable form of a C++ symbol, of limited length.
std::string readable(const char* symbol);

// ---- recorder_memory

struct Block {
    uint64_t address, bytes;
    Phase phase;
    bool open;
    uint32_t born;
    bool of_graph;  // made while a stream is captured: the graph uses it after it is freed
    std::optional<std::pair<Phase, uint32_t>> freed;
};

const std::vector<Block>& blocks();
bool is_device(const void* address);
// Null if the device has no room.
void* allocate(size_t bytes);
// False for what was not allocated, or was freed before.
bool release(void* address);
void* allocate_pinned(size_t bytes);
uint64_t bytes_in_use();
void set_device_bytes(uint64_t bytes);
uint64_t device_bytes();
// Whether the host may still read and write device memory.
bool memory_open();
void close_memory();

// ---- recorder_modules

struct KernelInfo {
    std::vector<uint32_t> params;
    int registers, shared, local, max_threads;
};

struct Module {
    std::string library;  // path within the artifact; empty for what is not the candidate's
    std::string file;
    uint64_t address;
    std::optional<uint32_t> index;  // in the recording
};

struct Function {
    Module* module;
    std::string name;
    const KernelInfo* info;         // null if the judge does not know it
    std::optional<uint32_t> index;  // in the recording
    std::optional<uint32_t> max_dynamic_shared;
    std::optional<int> shared_carveout;
    bool nonportable_cluster = false;
};

struct Variable {
    const void* host;
    const char* name;
    size_t bytes;
    Module* module;
};

// Null for an address that is not registered.
Function* find_function(const void* host);
const Variable* find_variable(const void* host);
// Refuses a kernel that the judge cannot launch; then null.
Function* launchable(const void* host);
uint32_t index_of(Module& module);
uint32_t index_of(Function& function);
const std::vector<Module*>& used_modules();
const std::vector<Function*>& used_functions();
cudaFuncAttributes attributes_of(const Function& function);

// ---- operations

struct Place {
    uint64_t address;
    const Variable* variable;  // then `address` is an offset into it
};

struct Launch {
    uint32_t kernel;
    dim3 grid, block;
    uint32_t shared;
    std::optional<dim3> cluster;
    bool cooperative, programmatic;
    std::vector<std::string> args;
};

struct Fill {
    Place to;
    uint32_t value;
    uint32_t element;
    uint64_t width, height, pitch;
};

struct Copy {
    Place to, from;
    uint64_t width, height, to_pitch, from_pitch;
};

struct Upload {
    Place to;
    std::string bytes;
};

struct Scalar {
    const char* type;  // as in the plan
    int64_t bits;
    bool is_signed;
};

struct Gemm {
    int transpose[2];
    int64_t sizes[3];
    uint64_t operands[3];
    uint32_t types[3];
    int64_t leading[3], strides[3];
    uint32_t batch;
    Scalar alpha, beta;
    uint32_t compute, math;
    int algorithm;
    bool pointers;
};

struct Gemv {
    int transpose;
    int64_t sizes[2];
    uint64_t operands[3];
    uint32_t dtype;
    int64_t leading, steps[2], strides[3];
    uint32_t batch;
    Scalar alpha, beta;
    uint32_t math;
};

struct DnnTensor {
    uint64_t at;
    uint32_t dtype;
    std::vector<uint32_t> dims, strides;
};

struct DnnFilter {
    uint64_t at;
    uint32_t dtype, format;
    std::vector<uint32_t> dims;
};

struct DnnEpilogue {
    DnnTensor bias;
    std::optional<uint64_t> residual;
    uint32_t activation;
};

struct Convolution {
    bool transposed;
    DnnTensor source;
    DnnFilter filter;
    DnnTensor result;
    std::vector<uint32_t> padding, steps, dilation;
    uint32_t groups, mode, compute, math;
    Scalar alpha, beta;
    std::optional<uint32_t> algorithm;
    std::optional<DnnEpilogue> epilogue;
};

struct LtMatrix {
    uint64_t at;
    uint32_t dtype;
    int64_t sizes[2];
    int64_t leading;
    bool row_major;
    uint32_t batch;
    int64_t stride;
};

struct Matmul {
    int transpose[2];
    std::vector<LtMatrix> matrices;  // A, B, C and D
    Scalar alpha, beta;
    uint32_t compute, epilogue;
    std::optional<uint64_t> bias;
};

using Operation = std::variant<Launch, Fill, Copy, Upload, Gemm, Convolution, Gemv, Matmul>;

// ---- recorder_timeline, recorder_streams

struct Stream;
struct Graph;

struct Node {
    Phase phase;
    uint32_t stream;  // in the order of first use in a phase; 0 is the default stream
    std::vector<uint32_t> after;
    Operation operation;
};

const std::vector<Node>& nodes();
uint32_t nodes_of(Phase phase);
// Null for a handle that is none.
Stream* find_stream(cudaStream_t handle);
bool is_capturing(const Stream& stream);
bool any_capturing();
// Whether an operation on this stream happens at once, on the host.
bool runs_on_host(const Stream& stream);
cudaError_t record(Stream& stream, Operation operation);
// Later operations of all streams follow what was recorded so far.
void wait_for_all();
// Refuses work that nothing has waited for.
void end_of_phase();
// Nodes of other streams that the default stream waits for after its last node of the second call.
const std::vector<uint32_t>& joined_at_end();

// ---- recorder_tensormap

struct TensorMap {
    uint32_t dtype;
    uint64_t address;
    std::vector<uint64_t> dims, strides;
    std::vector<uint32_t> box_dims, element_strides;
    uint32_t interleave, swizzle, l2_promotion, oob_fill;
};

const std::vector<TensorMap>& tensor_maps();
bool holds_tensor_map(const std::string& bytes);
void* driver_function(const char* name);

// ---- recorder_device

// Remembers an error for cudaGetLastError.
cudaError_t fail(cudaError_t error);
// Refuses what the judge has not told.
int device_attribute(int attribute);
const cudaDeviceProp& device_properties();

// ---- recorder_write

std::string written();

}  // namespace recorder
