// The judge's memory file behind torch's CPU allocator.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "arena.h"

namespace {

char* base = nullptr;
size_t total = 0;
bool spills = false;
warpwright::Zone zone;

void release(void* data) {
    const char* block = static_cast<const char*>(data);
    if (block >= base && block < base + total)
        zone.give(block - base);
    else
        std::free(data);  // spilled
}

struct ArenaAllocator final : c10::Allocator {
    c10::DataPtr allocate(size_t size) override {
        const c10::Device cpu(c10::DeviceType::CPU);
        if (size == 0) return {nullptr, nullptr, &release, cpu};
        const size_t offset = zone.take(size);
        if (offset == SIZE_MAX && spills) {
            void* block = std::aligned_alloc(64, (size + 63) / 64 * 64);
            TORCH_CHECK_WITH(OutOfMemoryError, block, "failed to allocate memory: ", size, " bytes");
            return {block, block, &release, cpu};
        }
        TORCH_CHECK_WITH(OutOfMemoryError, offset != SIZE_MAX, "the arena has no room for ", size,
                         " more bytes: allocate less, or free intermediates earlier");
        return {base + offset, base + offset, &release, cpu};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* target, const void* source, std::size_t size) const override {
        std::memcpy(target, source, size);
    }
};

ArenaAllocator allocator;

}  // namespace

// Maps the file. A process that is timed populates its pages now: a fault inside a measured window
// would be timed.
extern "C" int arena_import(int descriptor, size_t size, int, int populate, size_t) {
    const int flags = MAP_SHARED | (populate ? MAP_POPULATE : 0);
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    if (at == MAP_FAILED) return errno;
    base = static_cast<char*>(at);
    total = size;
    zone.reset(0, size);
    return 0;
}
// Nothing that lies there may be alive, and torch must not allocate from it.
extern "C" void arena_release() {
    if (base) munmap(base, total);
    base = nullptr;
    total = 0;
}
// Other memory of the judge's, which nothing is allocated from.
extern "C" int arena_map(int descriptor, size_t size, int, uint64_t* at) {
    void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) return errno;
    *at = reinterpret_cast<uint64_t>(mapped);
    return 0;
}
extern "C" void arena_unmap(uint64_t at, size_t size) { munmap(reinterpret_cast<void*>(at), size); }
extern "C" uint64_t arena_base() { return reinterpret_cast<uint64_t>(base); }
extern "C" void arena_zone(size_t offset, size_t size) { zone.reset(offset, size); }
extern "C" void arena_install(int spill) {
    spills = spill;
    c10::SetCPUAllocator(&allocator, 255);
}
