// What a recorder is told, call by call, and that nothing happens to memory while it listens. Whether
// recorded launches compute what direct ones do is in replay.py.
#include "check.cuh"
#include <cublas_v2.h>
#include <string>
#include <vector>

static std::vector<std::string> heard;
static hostcuda::LaunchCall launched;
static hostcuda::CopyCall copied;
static hostcuda::GemmCall multiplied;
static std::vector<std::string> bytes;
static int answer = 0;
static char block[64];

static int on_launch(void*, const hostcuda::LaunchCall* call) {
    heard.push_back(std::string("launch ") + call->name);
    launched = *call;
    bytes.clear();
    for (size_t i = 0; i < call->count; ++i)
        bytes.emplace_back((const char*)call->arguments[i].at, call->arguments[i].bytes);
    return answer;
}
static int on_fill(void*, const hostcuda::FillCall* call) {
    heard.push_back("fill " + std::to_string(call->value) + " " + std::to_string(call->width));
    return answer;
}
static int on_copy(void*, const hostcuda::CopyCall* call) {
    heard.push_back("copy " + std::to_string(call->kind));
    copied = *call;
    return answer;
}
static int on_gemm(void*, const hostcuda::GemmCall* call) {
    heard.push_back("gemm");
    multiplied = *call;
    return answer;
}
static int on_allocate(void* context, void** to, uint64_t size) {
    heard.push_back("allocate " + std::to_string(size));
    *to = context;
    return answer;
}
static int on_release(void* context, void* at) {
    heard.push_back(at == context ? "release" : "release of another");
    return answer;
}
static int on_refuse(void*, const char* what) {
    heard.push_back(std::string("refuse ") + what);
    return cudaErrorNotSupported;
}
static hostcuda::Recorder recorder{hostcuda::kRecorderVersion, sizeof(hostcuda::Recorder), block,
                                   on_launch, on_fill, on_copy, on_gemm, on_allocate, on_release, on_refuse};

struct Padded { char small; long long large; };
struct Owner {
    explicit Owner(int v) : value(new int(v)) {}
    Owner(const Owner& other) : value(new int(*other.value)) {}
    ~Owner() { delete value; }
    int* value;
};
__constant__ float table[4];
__global__ void store(float* y, Padded p, int n) { if (threadIdx.x < n) y[threadIdx.x] = (float)p.large + table[1]; }
__global__ void owned(float* y, Owner o) { y[0] = (float)*o.value; }
__global__ void empty() {}
static void with_rubbish(float* y, char rubbish) {
    Padded p;
    memset(&p, rubbish, sizeof(p));
    p.small = 1;
    p.large = 2;
    store<<<dim3(1, 2), 32, 16, (cudaStream_t)block>>>(y, p, 3);
}
static bool heard_only(const char* what) {
    const bool same = heard.size() == 1 && heard[0] == what;
    if (!same) printf("heard %s instead of %s\n", heard.empty() ? "nothing" : heard.back().c_str(), what);
    heard.clear();
    return same;
}

int main() {
    float y[4] = {-1, -1, -1, -1}, x[4] = {5, 6, 7, 8};
    hostcuda::Recorder newer = recorder;
    newer.version += 1;
    CHECK(0, hostcuda_set_recorder(&newer), 1);
    CHECK(1, hostcuda_set_recorder(&recorder), 0);

    with_rubbish(y, 0x55);
    CHECK(2, heard_only("launch store"), true);
    CHECK(3, launched.geometry.grid[1] == 2 && launched.geometry.block[0] == 32 && launched.geometry.shared == 16, true);
    CHECK(4, launched.stream == block && launched.count == 3 && launched.entry->count == 3, true);
    CHECK(5, launched.entry->magic, hostcuda::kEntryMagic);
    const uint32_t* sizes = (const uint32_t*)(launched.entry + 1);
    CHECK(6, sizes[0] == 8 && sizes[1] == sizeof(Padded) && sizes[2] == 4, true);
    const auto first = bytes;
    const auto entry = launched.entry;
    const auto geometry = launched.geometry;
    heard.clear();
    with_rubbish(y, 0x66);
    CHECK(7, bytes == first && launched.entry == entry, true);
    heard.clear();
    CHECK(8, y[0], -1);

    // Launches that a GPU would not accept are errors of the caller, and nothing to record.
    empty<<<1, 2048>>>();
    CHECK(10, cudaGetLastError(), cudaErrorInvalidConfiguration);
    decltype(&store) none = nullptr;
    none<<<1, 1>>>(y, Padded(), 3);
    CHECK(11, cudaGetLastError(), cudaErrorInvalidDeviceFunction);
    CHECK(12, heard.empty(), true);
    empty<<<1, 1>>>();
    CHECK(13, heard_only("launch empty") && launched.count == 0, true);
    answer = cudaErrorUnknown;
    empty<<<1, 1>>>();
    CHECK(14, cudaGetLastError(), cudaErrorUnknown);
    CHECK(15, cudaMemset(y, 0, 4), cudaErrorUnknown);
    cudaGetLastError();
    answer = 0;
    heard.clear();
    // Bytes cannot be copied of what owns something.
    owned<<<1, 1>>>(y, Owner(3));
    CHECK(16, cudaGetLastError(), cudaErrorNotSupported);
    CHECK(17, heard_only("refuse owned"), true);

    void* p = nullptr;
    CHECK(20, cudaMalloc(&p, 100) == cudaSuccess && p == block && heard_only("allocate 100"), true);
    CHECK(21, cudaFree(p) == cudaSuccess && heard_only("release"), true);
    CHECK(22, cudaMallocHost(&p, 100) == cudaSuccess && cudaFreeHost(p) == cudaSuccess && heard.empty(), true);
    CHECK(23, cudaMemsetAsync(y, 0x1ff, 12) == cudaSuccess && heard_only("fill 255 12"), true);
    cudaMemcpyToSymbol(table, x, 8, 4);
    CHECK(24, heard_only("copy 1") && copied.to == &table[1] && copied.from == x && copied.width == 8, true);
    cudaMemcpy2D(y, 16, x, 8, 4, 2, cudaMemcpyDeviceToDevice);
    CHECK(25, heard_only("copy 3") && copied.to_pitch == 16 && copied.from_pitch == 8 && copied.height == 2, true);
    cudaMemcpyFromSymbol(y, table, 4);
    CHECK(26, heard_only("copy 2") && copied.from == table, true);

    const float alpha = 2, beta = 3;
    cublasStatus_t status = cublasSgemmStridedBatched(nullptr, CUBLAS_OP_T, CUBLAS_OP_N, 1, 2, 3, &alpha, x, 4, 5, x, 6, 7, &beta, y, 8, 9, 10);
    CHECK(30, status == CUBLAS_STATUS_SUCCESS && heard_only("gemm"), true);
    const auto& g = multiplied;
    CHECK(31, g.transpose[0] == 1 && g.transpose[1] == 0 && g.sizes[0] == 1 && g.sizes[1] == 2 && g.sizes[2] == 3, true);
    CHECK(32, g.leading[0] == 4 && g.strides[0] == 5 && g.leading[1] == 6 && g.strides[1] == 7 && g.leading[2] == 8, true);
    CHECK(33, g.strides[2] == 9 && g.batch == 10 && g.a == x && g.c == y && g.alpha == &alpha && g.beta == &beta, true);
    status = cublasGemmEx(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, x, CUDA_R_16F, 1, x, CUDA_R_16F, 1, &beta, y, CUDA_R_32F, 1,
                          CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    CHECK(34, status == CUBLAS_STATUS_SUCCESS && heard_only("gemm") && g.types[0] == 2 && g.types[2] == 0 && g.compute == 74 && g.algorithm == 99, true);
    status = cublasGemmEx(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, x, CUDA_R_64F, 1, x, CUDA_R_64F, 1, &beta, y, CUDA_R_64F, 1,
                          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    CHECK(35, status == CUBLAS_STATUS_NOT_SUPPORTED && heard.empty(), true);

    cudaEvent_t from, to;
    cudaEventCreate(&from), cudaEventCreate(&to);
    cudaEventRecord(from), cudaEventRecord(to);
    float ms = -1;
    CHECK(40, cudaEventElapsedTime(&ms, from, to), cudaErrorNotSupported);
    CHECK(41, heard_only("refuse cudaEventElapsedTime") && ms == -1, true);
    CHECK(42, y[0] == -1 && y[3] == -1 && table[1] == 0, true);

    // The positive control: without a recorder the same calls compute.
    CHECK(50, hostcuda_set_recorder(nullptr), 0);
    cudaGetLastError();
    cudaMemcpyToSymbol(table, x, 8, 4);
    const void* arguments[] = {first[0].data(), first[1].data(), first[2].data()};
    CHECK(51, entry->run(&geometry, arguments), cudaSuccess);
    CHECK(52, y[0] == 7 && y[2] == 7 && y[3] == -1, true);  // 2 + x[0], as table[1] is x[0]
    hostcuda::Geometry wrong = geometry;
    wrong.block[0] = 4096;
    CHECK(53, entry->run(&wrong, arguments), cudaErrorInvalidConfiguration);
    CHECK(54, heard.empty(), true);
    return failures != 0;
}
