// The driver's functions that candidates may call: descriptors of the tensor memory accelerator.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "recorder.h"

namespace recorder {
namespace {

// As in the plan: what stands for a descriptor until the replayer encodes it.
const char kMark[8] = {'W', 'W', 'T', 'M', 'A', 'P', 1, 0x7f};
constexpr size_t kMostMaps = 256;

std::vector<TensorMap> maps;

uint64_t element_bytes(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT8:
            return 1;
        case CU_TENSOR_MAP_DATA_TYPE_UINT16:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
            return 2;
        case CU_TENSOR_MAP_DATA_TYPE_INT64:
        case CU_TENSOR_MAP_DATA_TYPE_UINT64:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
            return 8;
        default:
            return 4;
    }
}

// The limits in the description of cuTensorMapEncodeTiled that a candidate's fallback may rely on.
bool is_valid(CUtensorMapDataType type, const TensorMap& map) {
    const auto between = [](auto low, auto high) { return [=](auto v) { return v >= low && v <= high; }; };
    const auto all = [](const auto& values, auto test) { return std::all_of(values.begin(), values.end(), test); };
    const uint64_t alignment = map.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
    if (map.address % alignment || !all(map.dims, between(uint64_t(1), uint64_t(1) << 32))) return false;
    if (!all(map.strides, [&](uint64_t s) { return s % alignment == 0 && s < (uint64_t(1) << 40); })) return false;
    if (!all(map.box_dims, between(1u, 256u)) || !all(map.element_strides, between(1u, 8u))) return false;
    const uint64_t inner = map.box_dims[0] * element_bytes(type);
    const uint64_t widest = map.swizzle == CU_TENSOR_MAP_SWIZZLE_32B   ? 32
                            : map.swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                            : map.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? ~uint64_t(0)
                                                                        : 128;
    return map.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || (inner % 16 == 0 && inner <= widest);
}

void mark(CUtensorMap* out, uint64_t index) {
    static_assert(sizeof(CUtensorMap) == 128, "a descriptor has 128 bytes");
    memset(out, 0, sizeof *out);
    memcpy(out, kMark, sizeof kMark);
    memcpy(reinterpret_cast<char*>(out) + sizeof kMark, &index, sizeof index);
}

CUresult unknown_driver_function() { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace

const std::vector<TensorMap>& tensor_maps() { return maps; }

bool holds_tensor_map(const std::string& bytes) {
    return bytes.find(std::string(kMark, sizeof kMark)) != std::string::npos;
}

}  // namespace recorder

using namespace recorder;

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box_dims,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                                CUtensorMapFloatOOBfill oob_fill) {
    enter(__func__);
    if (!out || rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
    if (maps.size() == kMostMaps) refuse("encodes more than 256 tensor maps");
    TensorMap map = {static_cast<uint32_t>(type),
                     reinterpret_cast<uint64_t>(address),
                     {dims, dims + rank},
                     {strides, strides + rank - 1},
                     {box_dims, box_dims + rank},
                     {element_strides, element_strides + rank},
                     static_cast<uint32_t>(interleave),
                     static_cast<uint32_t>(swizzle),
                     static_cast<uint32_t>(l2_promotion),
                     static_cast<uint32_t>(oob_fill)};
    if (!is_valid(type, map)) return CUDA_ERROR_INVALID_VALUE;
    mark(out, maps.size());
    maps.push_back(std::move(map));
    return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const int*, const int*, cuuint32_t, cuuint32_t,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    refuse("encodes an im2col tensor map (cuTensorMapEncodeIm2col)");
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
    *text = error == CUDA_SUCCESS ? "no error" : "invalid argument";
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
    *text = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_INVALID_VALUE";
    return CUDA_SUCCESS;
}

// What torch asks of the driver before it believes in a device. The library's name is libcuda.so.1.
CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return cudaDriverGetVersion(version) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* count) {
    *count = 1;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int) {
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
    *context = reinterpret_cast<CUcontext>(1);
    return CUDA_SUCCESS;
}

}  // extern "C"

void* recorder::driver_function(const char* name) {
    const std::pair<const char*, void*> known[] = {
        {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(cuTensorMapEncodeTiled)},
        {"cuTensorMapEncodeIm2col", reinterpret_cast<void*>(cuTensorMapEncodeIm2col)},
        {"cuGetErrorString", reinterpret_cast<void*>(cuGetErrorString)},
        {"cuGetErrorName", reinterpret_cast<void*>(cuGetErrorName)},
        {"cuInit", reinterpret_cast<void*>(cuInit)},
        {"cuDriverGetVersion", reinterpret_cast<void*>(cuDriverGetVersion)},
        {"cuDeviceGetCount", reinterpret_cast<void*>(cuDeviceGetCount)},
        {"cuDeviceGet", reinterpret_cast<void*>(cuDeviceGet)},
        {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(cuDevicePrimaryCtxGetState)},
        {"cuCtxGetCurrent", reinterpret_cast<void*>(cuCtxGetCurrent)},
    };
    for (const auto& [function, address] : known)
        if (!strcmp(function, name)) return address;
    // Torch resolves what it may need of the driver before a recording begins, and calls none of it.
    refuse(std::string("asks for the driver's function ") + name);
    return reinterpret_cast<void*>(unknown_driver_function);
}
