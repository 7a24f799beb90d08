// The recorder of the cpu device: hears what the runtime in a candidate's library would do (hostcuda/record.h),
// and stands behind torch's allocator. Every tensor lies in device memory, as the host and the device are one.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "hostcuda_record.h"
#include "recorder.h"

namespace recorder {
namespace {

// Larger contents belong into weights, or into memory that prepare() writes while it is open.
constexpr size_t kMostUpload = size_t(1) << 20;
constexpr uint64_t kPage = 4096;
// Numbers below are no addresses: sizes and counts are common there.
constexpr uint64_t kLowestAddress = uint64_t(1) << 32;
// Without the attribute, a GPU allows so much dynamic shared memory. Here nothing has to be set.
constexpr uint32_t kUsualShared = 48u << 10;
// A variable of a library is a place in its image.
constexpr char kImage[] = "image";

enum Direction { HostToHost, HostToDevice, DeviceToHost, DeviceToDevice, Default };

std::vector<Node> all_nodes;
uint32_t counts[kPhases] = {};
std::vector<std::unique_ptr<Module>> modules;
std::vector<std::unique_ptr<Function>> functions;
std::vector<std::unique_ptr<Variable>> images;
std::vector<Module*> named_modules;
std::vector<Function*> named_functions;
const std::vector<uint32_t> no_joins;
const std::vector<TensorMap> no_maps;
// Torch's own work on the host while memory is closed.
bool for_host = false;

// ---- libraries

struct Image {
    uint64_t base, end;
    Module* module;
    Variable* variable;
};
std::vector<Image> loaded;

const Image* image_of(uint64_t address) {
    for (const Image& image : loaded)
        if (address >= image.base && address < image.end) return &image;
    return nullptr;
}

uint64_t end_of(const link_map* map) {
    const auto* head = reinterpret_cast<const ElfW(Ehdr)*>(map->l_addr);
    const auto* part = reinterpret_cast<const ElfW(Phdr)*>(map->l_addr + head->e_phoff);
    uint64_t end = 0;
    for (int i = 0; i < head->e_phnum; i++)
        if (part[i].p_type == PT_LOAD) end = std::max<uint64_t>(end, part[i].p_vaddr + part[i].p_memsz);
    return map->l_addr + end;
}

uint32_t index_of(const Image& image) {
    Module& module = *image.module;
    if (!module.index) {
        module.index = static_cast<uint32_t>(named_modules.size());
        named_modules.push_back(&module);
    }
    return *module.index;
}

// The launches of one entry by one name. The name tells people; the offset is what counts.
Function& function_of(const Image& image, const char* name, uint64_t entry) {
    char offset[32];
    snprintf(offset, sizeof offset, "@0x%llx", static_cast<unsigned long long>(entry - image.base));
    const std::string full = std::string(*name ? name : "kernel") + offset;
    for (Function* function : named_functions)
        if (function->module == image.module && function->name == full) return *function;
    functions.push_back(std::make_unique<Function>());
    Function& made = *functions.back();
    made.module = image.module;
    made.name = full;
    made.index = static_cast<uint32_t>(named_functions.size());
    named_functions.push_back(&made);
    return made;
}

// ---- operations

int record(Operation operation) {
    if (phase() == Phase::Idle) return cudaErrorNotSupported;
    // A kernel's results are only known later: from here on nobody may read them.
    if (phase() == Phase::Prepare && std::holds_alternative<Launch>(operation)) close_memory();
    all_nodes.push_back({phase(), 0, {}, std::move(operation)});
    counts[static_cast<int>(phase())]++;
    return cudaSuccess;
}

// Whether there is memory of the host at an address.
bool is_host_memory(uint64_t address) {
    if (address < kLowestAddress || address >> 47 || is_device(reinterpret_cast<void*>(address))) return false;
    return msync(reinterpret_cast<void*>(address / kPage * kPage), kPage, MS_ASYNC) == 0 || errno != ENOMEM;
}

bool has_host_address(const std::string& bytes) {
    for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
        uint64_t word;
        memcpy(&word, bytes.data() + at, 8);
        if (is_host_memory(word)) return true;
    }
    return false;
}

int launch(void*, const hostcuda::LaunchCall* call) {
    enter("a kernel");
    const uint64_t entry = reinterpret_cast<uint64_t>(call->entry);
    const Image* image = image_of(entry);
    const std::string name = *call->name ? call->name : "of a pointer";
    if (!image) return refused("launches kernel " + name + " of another library");
    index_of(*image);
    Function& function = function_of(*image, call->name, entry);
    const auto& g = call->geometry;
    Launch made = {*function.index, {g.grid[0], g.grid[1], g.grid[2]}, {g.block[0], g.block[1], g.block[2]},
                   static_cast<uint32_t>(g.shared), std::nullopt, false, false, {}};
    if (made.shared > kUsualShared) function.max_dynamic_shared = std::max(made.shared, function.max_dynamic_shared.value_or(0));
    for (uint64_t i = 0; i < call->count; i++) {
        const hostcuda::Argument& argument = call->arguments[i];
        made.args.emplace_back(static_cast<const char*>(argument.at), argument.bytes);
        if (has_host_address(made.args.back()))
            return refused("passes an address of the host to kernel " + name);
    }
    return record(std::move(made));
}

Place at(const void* address) { return {reinterpret_cast<uint64_t>(address), nullptr}; }

// A place on the device: in its memory, or of a library's variable.
std::optional<Place> place_of(const void* address) {
    if (is_device(address)) return at(address);
    const Image* image = image_of(reinterpret_cast<uint64_t>(address));
    if (!image) return std::nullopt;
    index_of(*image);
    return Place{reinterpret_cast<uint64_t>(address) - image->base, image->variable};
}

int fill(void*, const hostcuda::FillCall* call) {
    enter("cudaMemset");
    if (!call->width || !call->height) return cudaSuccess;
    const auto to = place_of(call->to);
    if (!to) return cudaErrorInvalidValue;
    if (memory_open() && is_device(call->to)) {
        for (uint64_t row = 0; row < call->height; row++)
            for (uint64_t i = 0; i < call->width; i++)
                memcpy(static_cast<char*>(call->to) + row * call->pitch + i * call->element, &call->value, call->element);
        return cudaSuccess;
    }
    return record(Fill{*to, call->value, call->element, call->width, call->height, call->pitch});
}

int on_host(const hostcuda::CopyCall& c) {
    for (uint64_t row = 0; row < c.height; row++)
        memmove(static_cast<char*>(c.to) + row * c.to_pitch, static_cast<const char*>(c.from) + row * c.from_pitch, c.width);
    return cudaSuccess;
}

int upload(const Place& to, const hostcuda::CopyCall& c) {
    if (c.width * c.height > kMostUpload) return refused("uploads more than 1 MiB from the host at once");
    const bool rows = c.height > 1 && (c.to_pitch != c.width || c.from_pitch != c.width);
    const uint64_t pieces = rows ? c.height : 1, bytes = rows ? c.width : c.width * c.height;
    for (uint64_t i = 0; i < pieces; i++) {
        const Upload made = {{to.address + i * c.to_pitch, to.variable},
                             std::string(static_cast<const char*>(c.from) + i * c.from_pitch, bytes)};
        if (has_host_address(made.bytes)) return refused("uploads an address of the host");
        if (const int error = record(made)) return error;
    }
    return cudaSuccess;
}

int copy(void*, const hostcuda::CopyCall* call) {
    enter("cudaMemcpy");
    const hostcuda::CopyCall& c = *call;
    if (!c.width || !c.height) return cudaSuccess;
    const bool in_memory = is_device(c.to) || is_device(c.from);
    if (c.kind == DeviceToHost && !is_device(c.to)) {
        if (memory_open() && is_device(c.from)) return on_host(c);
        return refused("copies device memory to the host (cudaMemcpy)");
    }
    const auto to = place_of(c.to);
    if (!to && !in_memory) return on_host(c);
    const bool both = is_device(c.to) ? is_device(c.from) || !place_of(c.from) : false;
    if (memory_open() && both) return on_host(c);
    if (!to) return refused("copies device memory to the host (cudaMemcpy)");
    // What lies in a library may be the host's: the caller says so.
    const auto from = c.kind == HostToDevice && !is_device(c.from) ? std::nullopt : place_of(c.from);
    if (!from) return upload(*to, c);
    return record(Copy{*to, *from, c.width, c.height, c.to_pitch, c.from_pitch});
}

int gemm(void*, const hostcuda::GemmCall*) {
    return refused("calls cuBLAS, which is not recorded on the cpu device");
}

int allocate_device(void*, void** to, uint64_t bytes) {
    enter("cudaMalloc");
    *to = bytes ? allocate(bytes) : nullptr;
    return *to || !bytes ? cudaSuccess : cudaErrorMemoryAllocation;
}

int release_device(void*, void* address) {
    enter("cudaFree");
    return !address || release(address) ? cudaSuccess : cudaErrorInvalidValue;
}

int refuse_launch(void*, const char* what) {
    return refused(std::string("launches ") + (*what ? what : "something") + ", which is no kernel that can be recorded");
}

const hostcuda::Recorder hooks = {hostcuda::kRecorderVersion, sizeof(hostcuda::Recorder), nullptr, launch, fill, copy, gemm,
                                  allocate_device, release_device, refuse_launch};

// ---- torch's memory

void give_back(void* data) {
    if (!is_device(data))
        std::free(data);
    else
        release(data);
}

struct HostAllocator final : c10::Allocator {
    c10::DataPtr allocate(size_t size) override {
        const c10::Device cpu(c10::DeviceType::CPU);
        if (size == 0) return {nullptr, nullptr, &give_back, cpu};
        void* at = for_host || phase() == Phase::Idle ? std::aligned_alloc(64, (size + 63) / 64 * 64) : recorder::allocate(size);
        TORCH_CHECK_WITH(OutOfMemoryError, at, "the arena has no room for ", size, " more bytes");
        return {at, at, &give_back, cpu};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* target, const void* source, std::size_t size) const override {
        std::memcpy(target, source, size);
    }
};
HostAllocator allocator;

}  // namespace

// ---- what the parts that are shared with a GPU's recorder ask

uint32_t nodes_of(Phase phase) { return counts[static_cast<int>(phase)]; }
const std::vector<Node>& nodes() { return all_nodes; }
const std::vector<Module*>& used_modules() { return named_modules; }
const std::vector<Function*>& used_functions() { return named_functions; }
const std::vector<TensorMap>& tensor_maps() { return no_maps; }
const std::vector<uint32_t>& joined_at_end() { return no_joins; }
bool any_capturing() { return false; }
void end_of_phase() {}
cudaError_t fail(cudaError_t error) { return error; }

}  // namespace recorder

using namespace recorder;

extern "C" void recorder_install() { c10::SetCPUAllocator(&allocator, 255); }

// Whether torch gets memory that is the host's alone.
extern "C" void recorder_for_host(int on) { for_host = on; }

// Loads a library of the artifact, which is `name` in it, and hears what it does. Returns 1 if it cannot.
extern "C" int recorder_watch(const char* path, const char* name) {
    void* handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) return 1;
    const auto install = reinterpret_cast<int (*)(const hostcuda::Recorder*)>(dlsym(handle, "hostcuda_set_recorder"));
    link_map* map = nullptr;
    if (!install || dlinfo(handle, RTLD_DI_LINKMAP, &map)) return 0;  // it launches nothing
    modules.push_back(std::make_unique<Module>(Module{name, path, 0, std::nullopt}));
    images.push_back(std::make_unique<Variable>(Variable{nullptr, kImage, 0, modules.back().get()}));
    loaded.push_back({map->l_addr, end_of(map), modules.back().get(), images.back().get()});
    return install(&hooks);
}

extern "C" void recorder_fill(uint64_t to, uint32_t value, uint32_t element, uint64_t count, cudaStream_t) {
    const hostcuda::FillCall call = {reinterpret_cast<void*>(to), count * element, count, 1, value, element, nullptr};
    fill(nullptr, &call);
}

// Copies bytes between tensors, or from memory of the host.
extern "C" void recorder_copy(uint64_t to, uint64_t from, uint64_t bytes) {
    const hostcuda::CopyCall call = {reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, bytes, bytes, 1,
                                     Default, 0, nullptr};
    copy(nullptr, &call);
}
