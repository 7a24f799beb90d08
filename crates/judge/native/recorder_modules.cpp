// Fat binaries, kernels and variables, as nvcc's generated code registers them.
#include <cuda_occupancy.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <unordered_map>

#include "recorder.h"

namespace recorder {
namespace {

struct Registered {
    const void* host;
    const char* name;
    Module* module;
};

// Torch registers tens of thousands of kernels when it is imported; those of the candidate come last.
std::vector<Registered>& registered() {
    static std::vector<Registered> all;
    return all;
}
std::vector<Variable>& variables() {
    static std::vector<Variable> all;
    return all;
}

std::string artifact;
std::map<std::pair<std::string, uint64_t>, std::map<std::string, KernelInfo>> table;
std::unordered_map<const void*, Function*> functions;
std::vector<Module*> used_module_list;
std::vector<Function*> used_function_list;

// Where the linker put a file's image, and under which name.
Module* located(const void* image) {
    auto* module = new Module{"", "", 0, std::nullopt};
    Dl_info info;
    link_map* map = nullptr;
    if (dladdr1(image, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) && map) {
        module->file = map->l_name;
        module->address = reinterpret_cast<uint64_t>(image) - map->l_addr;
    }
    return module;
}

std::string within_artifact(const Module& module) {
    const std::string folder = artifact + "/";
    const bool inside = !artifact.empty() && module.file.compare(0, folder.size(), folder) == 0;
    return inside ? module.file.substr(folder.size()) : "";
}

const KernelInfo* known(const Module& module, const char* name) {
    const auto image = table.find({module.library, module.address});
    if (image == table.end()) return nullptr;
    const auto kernel = image->second.find(name);
    return kernel == image->second.end() ? nullptr : &kernel->second;
}

void refuse_unknown(const Function& function) {
    const std::string name = readable(function.name.c_str());
    refuse(function.module->library.empty()
               ? "launches torch's own kernel " + name
               : "launches the kernel " + name + ", which is not in the device code of the build");
}

// Warps that the registers of a multiprocessor hold, times their threads.
int threads_by_registers(int registers) {
    cudaOccDeviceProp device(device_properties());
    int granularity = 0, partitions = 0;
    if (cudaOccRegAllocationGranularity(&granularity, &device) != CUDA_OCC_SUCCESS ||
        cudaOccSubPartitionsPerMultiprocessor(&partitions, &device) != CUDA_OCC_SUCCESS || registers <= 0)
        return INT_MAX;
    const int of_a_warp = __occRoundUp(registers * device.warpSize, granularity);
    return device.regsPerBlock / partitions / of_a_warp * partitions * device.warpSize;
}

}  // namespace

Function* find_function(const void* host) {
    const auto found = functions.find(host);
    if (found != functions.end()) return found->second;
    const auto& all = registered();
    const auto last = std::find_if(all.rbegin(), all.rend(), [&](const Registered& r) { return r.host == host; });
    if (last == all.rend()) return nullptr;
    if (last->module->library.empty()) last->module->library = within_artifact(*last->module);
    auto* function = new Function{last->module, last->name, known(*last->module, last->name), {}, {}, {}};
    functions[host] = function;
    return function;
}

const Variable* find_variable(const void* host) {
    for (Variable& variable : variables()) {
        if (variable.host != host) continue;
        if (variable.module->library.empty()) variable.module->library = within_artifact(*variable.module);
        return &variable;
    }
    return nullptr;
}

Function* launchable(const void* host) {
    Function* function = find_function(host);
    if (!function) {
        refuse("launches a function that no library registered");
        return nullptr;
    }
    if (function->info) return function;
    refuse_unknown(*function);
    return nullptr;
}

uint32_t index_of(Module& module) {
    if (!module.index) {
        module.index = static_cast<uint32_t>(used_module_list.size());
        used_module_list.push_back(&module);
    }
    return *module.index;
}

uint32_t index_of(Function& function) {
    if (!function.index) {
        index_of(*function.module);
        function.index = static_cast<uint32_t>(used_function_list.size());
        used_function_list.push_back(&function);
    }
    return *function.index;
}

const std::vector<Module*>& used_modules() { return used_module_list; }
const std::vector<Function*>& used_functions() { return used_function_list; }

cudaFuncAttributes attributes_of(const Function& function) {
    cudaFuncAttributes attributes;
    memset(&attributes, 0, sizeof attributes);
    const KernelInfo& info = *function.info;
    const cudaDeviceProp& device = device_properties();
    const int version = 10 * device.major + device.minor;
    attributes.numRegs = info.registers;
    attributes.sharedSizeBytes = static_cast<size_t>(info.shared);
    attributes.localSizeBytes = static_cast<size_t>(info.local);
    attributes.maxThreadsPerBlock = std::min({info.max_threads > 0 ? info.max_threads : INT_MAX,
                                              device.maxThreadsPerBlock, threads_by_registers(info.registers)});
    attributes.ptxVersion = attributes.binaryVersion = version;
    const int unset = static_cast<int>(device.sharedMemPerBlock) - info.shared;
    attributes.maxDynamicSharedSizeBytes =
        function.max_dynamic_shared ? static_cast<int>(*function.max_dynamic_shared) : unset;
    attributes.preferredShmemCarveout = function.shared_carveout.value_or(-1);
    return attributes;
}

}  // namespace recorder

using namespace recorder;

namespace {

cudaOccDeviceState state_of(const Function& function) {
    cudaOccDeviceState state;
    state.carveoutConfig = function.shared_carveout.value_or(SHAREDMEM_CARVEOUT_DEFAULT);
    return state;
}

cudaOccFuncAttributes occupancy_attributes(const Function& function) {
    cudaOccFuncAttributes attributes(attributes_of(function));
    if (function.max_dynamic_shared) attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    return attributes;
}

cudaError_t set_attribute(Function& function, cudaFuncAttribute attribute, int value) {
    const int64_t optin = static_cast<int64_t>(device_properties().sharedMemPerBlockOptin);
    switch (attribute) {
        case cudaFuncAttributeMaxDynamicSharedMemorySize:
            if (value < 0 || value + function.info->shared > optin) return fail(cudaErrorInvalidValue);
            function.max_dynamic_shared = static_cast<uint32_t>(value);
            return cudaSuccess;
        case cudaFuncAttributePreferredSharedMemoryCarveout:
            if (value < -1 || value > 100) return fail(cudaErrorInvalidValue);
            function.shared_carveout = value;
            return cudaSuccess;
        case cudaFuncAttributeNonPortableClusterSizeAllowed:
            function.nonportable_cluster = value != 0;
            return cudaSuccess;
        default:
            return refused("sets function attribute " + std::to_string(attribute) + " (cudaFuncSetAttribute)");
    }
}

}  // namespace

extern "C" void recorder_artifact(const char* folder) { artifact = folder; }

extern "C" void recorder_kernel(const char* library, uint64_t address, const char* name, const uint32_t* params,
                                int count, int registers, int shared, int local, int max_threads) {
    table[{library, address}][name] = {{params, params + count}, registers, shared, local, max_threads};
}

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
    struct Wrapper {
        int magic, version;
        const void* image;
    };
    return reinterpret_cast<void**>(located(static_cast<const Wrapper*>(wrapper)->image));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void** module, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
    registered().push_back({host, name, reinterpret_cast<Module*>(module)});
}
void __cudaRegisterVar(void** module, char* host, char*, const char* name, int, size_t bytes, int, int) {
    variables().push_back({host, name, bytes, reinterpret_cast<Module*>(module)});
}
void __cudaRegisterManagedVar(void**, void**, char*, const char* name, int, size_t, int, int) {
    refuse(std::string("has the managed variable ") + readable(name));
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
    enter(__func__);
    Function* function = launchable(host);
    return function ? set_attribute(*function, attribute, value) : fail(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
    enter(__func__);
    const Function* function = launchable(host);
    if (!function) return fail(cudaErrorInvalidDeviceFunction);
    *attributes = attributes_of(*function);
    return cudaSuccess;
}
cudaError_t cudaFuncGetName(const char** name, const void* host) {
    const Function* function = find_function(host);
    if (!function) return fail(cudaErrorInvalidDeviceFunction);
    *name = function->name.c_str();
    return cudaSuccess;
}

// Occupancy is computed by NVIDIA's own header, cuda_occupancy.h.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host, int threads,
                                                                   size_t shared, unsigned) {
    enter(__func__);
    const Function* function = launchable(host);
    if (!function) return fail(cudaErrorInvalidDeviceFunction);
    if (threads < 1) return fail(cudaErrorInvalidValue);
    const cudaOccDeviceProp device(device_properties());
    const cudaOccFuncAttributes attributes = occupancy_attributes(*function);
    const cudaOccDeviceState state = state_of(*function);
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &attributes, &state, threads, shared) !=
        CUDA_OCC_SUCCESS)
        return fail(cudaErrorInvalidValue);
    *blocks = result.activeBlocksPerMultiprocessor;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int threads,
                                                          size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* host, int blocks, int threads) {
    enter(__func__);
    const Function* function = launchable(host);
    if (!function) return fail(cudaErrorInvalidDeviceFunction);
    const cudaOccDeviceProp device(device_properties());
    const cudaOccFuncAttributes attributes = occupancy_attributes(*function);
    const cudaOccDeviceState state = state_of(*function);
    if (cudaOccAvailableDynamicSMemPerBlock(bytes, &device, &attributes, &state, blocks, threads) !=
        CUDA_OCC_SUCCESS)
        return fail(cudaErrorInvalidValue);
    return cudaSuccess;
}

}  // extern "C"
