// Device memory that the judge created and exported, behind torch's pluggable CUDA allocator.
#include <cuda.h>
#include <sys/types.h>
#include <stdexcept>
#include <string>

#include "arena.h"

namespace {

CUdeviceptr base = 0;
size_t total = 0;
warpwright::Zone zone;

CUresult access(CUdeviceptr at, size_t size, int ordinal) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return cuMemSetAccess(at, size, &access, 1);
}

// Maps exported memory at an address that is reserved; zero, or the driver's code.
CUresult map_at(int descriptor, size_t size, int ordinal, CUdeviceptr at) {
    CUmemGenericAllocationHandle memory;
    void* handle = reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor));
    if (CUresult r = cuMemImportFromShareableHandle(&memory, handle,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return r;
    if (CUresult r = cuMemMap(at, size, 0, memory, 0)) return r;
    if (CUresult r = access(at, size, ordinal)) return r;
    // What is mapped stays until it is unmapped.
    return cuMemRelease(memory);
}

// The same at the start of `room` bytes of addresses.
CUresult map(int descriptor, size_t size, int ordinal, CUdeviceptr& at, size_t room) {
    CUdevice device;
    CUcontext context;
    if (CUresult r = cuInit(0)) return r;
    if (CUresult r = cuDeviceGet(&device, ordinal)) return r;
    if (CUresult r = cuDevicePrimaryCtxRetain(&context, device)) return r;
    if (CUresult r = cuCtxSetCurrent(context)) return r;
    if (CUresult r = cuMemAddressReserve(&at, room > size ? room : size, 0, 0, 0)) return r;
    return map_at(descriptor, size, ordinal, at);
}

void unmap(CUdeviceptr at, size_t size) {
    cuMemUnmap(at, size);
    cuMemAddressFree(at, size);
}

// The driver wants what is mapped to be as large as it was made, in multiples of 2 MiB.
size_t whole(size_t size) {
    const size_t grain = size_t(2) << 20;
    return (size + grain - 1) / grain * grain;
}

// What lies beside the arena: the inputs of one window.
CUdeviceptr apart = 0;
size_t apart_size = 0;

}  // namespace

extern "C" int arena_import(int descriptor, size_t size, int ordinal, int, size_t room) {
    if (CUresult r = map(descriptor, whole(size), ordinal, base, whole(room))) return r;
    total = size;
    zone.reset(0, size);
    return 0;
}
// Other memory of the judge's, which nothing is allocated from.
extern "C" int arena_map(int descriptor, size_t size, int ordinal, uint64_t* at) {
    CUdeviceptr mapped = 0;
    const CUresult code = map(descriptor, whole(size), ordinal, mapped, 0);
    *at = mapped;
    return code;
}
extern "C" void arena_unmap(uint64_t at, size_t size) { unmap(at, whole(size)); }
// Addresses without an arena, for memory beside it.
extern "C" int arena_reserve(size_t size) { return cuMemAddressReserve(&base, size, 0, 0, 0); }
// Maps memory `at` bytes from the start of what is reserved: inside a measured window.
extern "C" int arena_open_apart(int descriptor, size_t at, size_t size, int ordinal) {
    if (CUresult r = map_at(descriptor, size, ordinal, base + at)) return r;
    apart = base + at;
    apart_size = size;
    return 0;
}
extern "C" void arena_close_apart() {
    if (apart) cuMemUnmap(apart, apart_size);
    apart = 0;
}
// Nothing that lies there may be alive, and torch must not allocate from it.
extern "C" void arena_release() {
    if (base) unmap(base, whole(total));
    base = 0;
    total = 0;
}
extern "C" uint64_t arena_base() { return base; }
extern "C" void arena_zone(size_t offset, size_t size) { zone.reset(offset, size); }

// Torch does not look at a null result; an exception reaches Python as an error.
extern "C" void* arena_alloc(ssize_t size, int, CUstream) {
    const size_t offset = zone.take(size);
    if (offset == SIZE_MAX)
        throw std::runtime_error("the arena has no room for " + std::to_string(size) +
                                 " more bytes: allocate less, or free intermediates earlier");
    return reinterpret_cast<void*>(base + offset);
}
extern "C" void arena_free(void* block, ssize_t, int, CUstream) {
    const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(block);
    if (at >= base && at < base + total) zone.give(at - base);
}
