// Questions about the device, answered by what the judge measured, and errors.
#include <cstring>

#include "recorder.h"

namespace recorder {
namespace {

std::map<int, int> attributes;
std::string device_name = "CUDA device";
int driver_version = CUDART_VERSION, runtime_version = CUDART_VERSION;
cudaError_t last_error = cudaSuccess;
bool stale = true;  // whether the properties do not show the attributes yet

int attribute_or_zero(int attribute) {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? 0 : found->second;
}

size_t bytes_of(int attribute) { return static_cast<size_t>(static_cast<unsigned>(attribute_or_zero(attribute))); }

void set_limits(cudaDeviceProp& p) {
    const auto of = attribute_or_zero;
    p.warpSize = of(cudaDevAttrWarpSize);
    p.maxThreadsPerBlock = of(cudaDevAttrMaxThreadsPerBlock);
    p.maxThreadsPerMultiProcessor = of(cudaDevAttrMaxThreadsPerMultiProcessor);
    p.maxBlocksPerMultiProcessor = of(cudaDevAttrMaxBlocksPerMultiprocessor);
    p.multiProcessorCount = of(cudaDevAttrMultiProcessorCount);
    p.regsPerBlock = of(cudaDevAttrMaxRegistersPerBlock);
    p.regsPerMultiprocessor = of(cudaDevAttrMaxRegistersPerMultiprocessor);
    p.sharedMemPerBlock = bytes_of(cudaDevAttrMaxSharedMemoryPerBlock);
    p.sharedMemPerBlockOptin = bytes_of(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p.sharedMemPerMultiprocessor = bytes_of(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    p.reservedSharedMemPerBlock = bytes_of(cudaDevAttrReservedSharedMemoryPerBlock);
    p.l2CacheSize = of(cudaDevAttrL2CacheSize);
    p.persistingL2CacheMaxSize = of(cudaDevAttrMaxPersistingL2CacheSize);
    p.accessPolicyMaxWindowSize = of(cudaDevAttrMaxAccessPolicyWindowSize);
    p.totalConstMem = bytes_of(cudaDevAttrTotalConstantMemory);
    p.memPitch = bytes_of(cudaDevAttrMaxPitch);
    p.memoryBusWidth = of(cudaDevAttrGlobalMemoryBusWidth);
    const int blocks[] = {cudaDevAttrMaxBlockDimX, cudaDevAttrMaxBlockDimY, cudaDevAttrMaxBlockDimZ};
    const int grids[] = {cudaDevAttrMaxGridDimX, cudaDevAttrMaxGridDimY, cudaDevAttrMaxGridDimZ};
    for (int i = 0; i < 3; i++) {
        p.maxThreadsDim[i] = of(blocks[i]);
        p.maxGridSize[i] = of(grids[i]);
    }
}

void set_abilities(cudaDeviceProp& p) {
    const auto of = attribute_or_zero;
    p.major = of(cudaDevAttrComputeCapabilityMajor);
    p.minor = of(cudaDevAttrComputeCapabilityMinor);
    p.textureAlignment = bytes_of(cudaDevAttrTextureAlignment);
    p.texturePitchAlignment = bytes_of(cudaDevAttrTexturePitchAlignment);
    p.surfaceAlignment = bytes_of(cudaDevAttrSurfaceAlignment);
    p.integrated = of(cudaDevAttrIntegrated);
    p.canMapHostMemory = of(cudaDevAttrCanMapHostMemory);
    p.concurrentKernels = of(cudaDevAttrConcurrentKernels);
    p.ECCEnabled = of(cudaDevAttrEccEnabled);
    p.asyncEngineCount = of(cudaDevAttrAsyncEngineCount);
    p.unifiedAddressing = of(cudaDevAttrUnifiedAddressing);
    p.streamPrioritiesSupported = of(cudaDevAttrStreamPrioritiesSupported);
    p.globalL1CacheSupported = of(cudaDevAttrGlobalL1CacheSupported);
    p.localL1CacheSupported = of(cudaDevAttrLocalL1CacheSupported);
    p.managedMemory = of(cudaDevAttrManagedMemory);
    p.pageableMemoryAccess = of(cudaDevAttrPageableMemoryAccess);
    p.concurrentManagedAccess = of(cudaDevAttrConcurrentManagedAccess);
    p.computePreemptionSupported = of(cudaDevAttrComputePreemptionSupported);
    p.cooperativeLaunch = of(cudaDevAttrCooperativeLaunch);
    p.memoryPoolsSupported = of(cudaDevAttrMemoryPoolsSupported);
#if CUDART_VERSION >= 12000
    p.clusterLaunch = of(cudaDevAttrClusterLaunch);
#endif
#if CUDART_VERSION < 13000
    p.clockRate = of(cudaDevAttrClockRate);
    p.memoryClockRate = of(cudaDevAttrMemoryClockRate);
    p.kernelExecTimeoutEnabled = of(cudaDevAttrKernelExecTimeout);
    p.computeMode = of(cudaDevAttrComputeMode);
#endif
}

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};
#define TEXT(error, text) {error, #error, text}
const ErrorText kErrors[] = {
    TEXT(cudaSuccess, "no error"),
    TEXT(cudaErrorInvalidValue, "invalid argument"),
    TEXT(cudaErrorMemoryAllocation, "out of memory"),
    TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TEXT(cudaErrorInvalidSymbol, "invalid device symbol"),
    TEXT(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    TEXT(cudaErrorNotReady, "device not ready"),
    TEXT(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    TEXT(cudaErrorNotSupported, "operation not supported"),
    TEXT(cudaErrorInvalidClusterSize, "cluster misconfiguration"),
    TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    TEXT(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    TEXT(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    TEXT(cudaErrorStreamCaptureImplicit,
         "operation would make the legacy stream depend on a capturing blocking stream"),
};

const ErrorText* text_of(cudaError_t error) {
    for (const ErrorText& known : kErrors)
        if (known.error == error) return &known;
    return nullptr;
}

}  // namespace

cudaError_t fail(cudaError_t error) {
    if (error) last_error = error;
    return error;
}

int device_attribute(int attribute) {
    const auto found = attributes.find(attribute);
    if (found != attributes.end()) return found->second;
    refuse("asks for attribute " + std::to_string(attribute) + " of the device, which is not known");
    return 0;
}

const cudaDeviceProp& device_properties() {
    static cudaDeviceProp properties;
    if (stale) {
        stale = false;
        memset(&properties, 0, sizeof properties);
        strncpy(properties.name, device_name.c_str(), sizeof properties.name - 1);
        properties.totalGlobalMem = device_bytes();
        set_limits(properties);
        set_abilities(properties);
    }
    return properties;
}

}  // namespace recorder

using namespace recorder;

extern "C" void recorder_device(const char* name, uint64_t bytes, int driver, int runtime) {
    device_name = *name ? name : device_name;
    set_device_bytes(bytes);
    driver_version = driver;
    runtime_version = runtime;
    stale = true;
}
extern "C" void recorder_attribute(int attribute, int value) {
    attributes[attribute] = value;
    stale = true;
}

extern "C" {

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device ? fail(cudaErrorInvalidDevice) : cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device) return fail(cudaErrorInvalidDevice);
    *properties = device_properties();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    enter(__func__);
    if (device) return fail(cudaErrorInvalidDevice);
    *value = device_attribute(attribute);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
    *can = 0;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = driver_version;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = runtime_version;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    *total = device_bytes();
    *free = *total - bytes_in_use();
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    memset(attributes, 0, sizeof *attributes);
    attributes->type = is_device(address) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    attributes->device = is_device(address) ? 0 : -2;  // cudaInvalidDeviceId
    attributes->devicePointer = is_device(address) ? const_cast<void*>(address) : nullptr;
    attributes->hostPointer = is_device(address) ? nullptr : const_cast<void*>(address);
    return cudaSuccess;
}
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
    return {x, y, z, w, kind};
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
    enter(__func__);
    *function = driver_function(name);
    if (status) *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
    return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
    const ErrorText* known = text_of(error);
    return known ? known->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
    const ErrorText* known = text_of(error);
    return known ? known->text : "unrecognized error code";
}

}  // extern "C"
