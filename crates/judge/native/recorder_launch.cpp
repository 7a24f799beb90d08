// Launches of kernels.
#include "recorder.h"

namespace recorder {
namespace {

// What `<<<>>>` leaves for the function that launches. An argument may launch, too.
struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
std::vector<Configuration> pushed;

struct Wanted {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    std::optional<dim3> cluster;
    bool cooperative = false, programmatic = false;
};

bool exceeds(dim3 extent, const int (&limits)[3]) {
    return !extent.x || !extent.y || !extent.z || extent.x > static_cast<unsigned>(limits[0]) ||
           extent.y > static_cast<unsigned>(limits[1]) || extent.z > static_cast<unsigned>(limits[2]);
}

// The errors that a device reports when it is asked to launch.
cudaError_t checked(const Function& function, const Wanted& wanted) {
    const cudaDeviceProp& device = device_properties();
    const cudaFuncAttributes attributes = attributes_of(function);
    if (exceeds(wanted.grid, device.maxGridSize) || exceeds(wanted.block, device.maxThreadsDim))
        return cudaErrorInvalidConfiguration;
    const uint64_t threads = uint64_t(wanted.block.x) * wanted.block.y * wanted.block.z;
    if (threads > static_cast<uint64_t>(device.maxThreadsPerBlock)) return cudaErrorInvalidConfiguration;
    if (threads > static_cast<uint64_t>(attributes.maxThreadsPerBlock)) return cudaErrorLaunchOutOfResources;
    if (wanted.shared > static_cast<size_t>(attributes.maxDynamicSharedSizeBytes)) return cudaErrorInvalidValue;
    if (const auto& c = wanted.cluster) {
        if (!c->x || !c->y || !c->z || wanted.grid.x % c->x || wanted.grid.y % c->y || wanted.grid.z % c->z)
            return cudaErrorInvalidClusterSize;
        const uint64_t blocks = uint64_t(c->x) * c->y * c->z;
        if (blocks > (function.nonportable_cluster ? 16 : 8)) return cudaErrorInvalidClusterSize;
    }
    return cudaSuccess;
}

std::vector<std::string> arguments(const KernelInfo& kernel, void** values) {
    std::vector<std::string> bytes;
    for (size_t i = 0; i < kernel.params.size(); i++)
        bytes.emplace_back(static_cast<const char*>(values[i]), kernel.params[i]);
    return bytes;
}

cudaError_t launch(const void* host, void** values, const Wanted& wanted) {
    Stream* stream = find_stream(wanted.stream);
    if (!stream) return fail(cudaErrorInvalidResourceHandle);
    Function* function = launchable(host);
    if (!function) return fail(cudaErrorInvalidDeviceFunction);
    if (const cudaError_t error = checked(*function, wanted)) return fail(error);
    return record(*stream, Launch{index_of(*function), wanted.grid, wanted.block,
                                  static_cast<uint32_t>(wanted.shared), wanted.cluster, wanted.cooperative,
                                  wanted.programmatic, arguments(*function->info, values)});
}

// False for an attribute that a plan cannot hold.
bool apply(const cudaLaunchAttribute& attribute, Wanted& wanted) {
    const cudaLaunchAttributeValue& value = attribute.val;
    switch (attribute.id) {
        case cudaLaunchAttributeIgnore:
            return true;
        case cudaLaunchAttributeClusterDimension:
            wanted.cluster = dim3(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z);
            return true;
        case cudaLaunchAttributeCooperative:
            wanted.cooperative = value.cooperative != 0;
            return true;
        case cudaLaunchAttributeProgrammaticStreamSerialization:
            wanted.programmatic = value.programmaticStreamSerializationAllowed != 0;
            return true;
        default:
            return false;
    }
}

}  // namespace
}  // namespace recorder

using namespace recorder;

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
    enter("a kernel");
    pushed.push_back({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (pushed.empty()) return fail(cudaErrorMissingConfiguration);
    *grid = pushed.back().grid;
    *block = pushed.back().block;
    *shared = pushed.back().shared;
    *static_cast<cudaStream_t*>(stream) = pushed.back().stream;
    pushed.pop_back();
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** values, size_t shared,
                             cudaStream_t stream) {
    enter(__func__);
    return launch(host, values, {grid, block, shared, stream, {}});
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** values, size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, values, shared, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* host, dim3 grid, dim3 block, void** values, size_t shared,
                                        cudaStream_t stream) {
    enter(__func__);
    return launch(host, values, {grid, block, shared, stream, {}, true});
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** values) {
    enter(__func__);
    Wanted wanted = {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream, {}};
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (!apply(config->attrs[i], wanted))
            return refused("launches with the attribute " + std::to_string(config->attrs[i].id) +
                           " (cudaLaunchAttributeID)");
    return launch(host, values, wanted);
}

}  // extern "C"
