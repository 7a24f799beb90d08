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

// Maps exported memory somewhere; zero, or the driver's code.
CUresult map(int descriptor, size_t size, int ordinal, CUdeviceptr& at) {
    CUdevice device;
    CUcontext context;
    CUmemGenericAllocationHandle memory;
    if (CUresult r = cuInit(0)) return r;
    if (CUresult r = cuDeviceGet(&device, ordinal)) return r;
    if (CUresult r = cuDevicePrimaryCtxRetain(&context, device)) return r;
    if (CUresult r = cuCtxSetCurrent(context)) return r;
    void* handle = reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor));
    if (CUresult r = cuMemImportFromShareableHandle(&memory, handle,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return r;
    if (CUresult r = cuMemAddressReserve(&at, size, 0, 0, 0)) return r;
    if (CUresult r = cuMemMap(at, size, 0, memory, 0)) return r;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (CUresult r = cuMemSetAccess(at, size, &access, 1)) return r;
    // What is mapped stays until it is unmapped.
    return cuMemRelease(memory);
}

void unmap(CUdeviceptr at, size_t size) {
    cuMemUnmap(at, size);
    cuMemAddressFree(at, size);
}

}  // namespace

extern "C" int arena_import(int descriptor, size_t size, int ordinal, int) {
    if (CUresult r = map(descriptor, size, ordinal, base)) return r;
    total = size;
    zone.reset(0, size);
    return 0;
}
// Other memory of the judge's, which nothing is allocated from.
extern "C" int arena_map(int descriptor, size_t size, int ordinal, uint64_t* at) {
    CUdeviceptr mapped = 0;
    const CUresult code = map(descriptor, size, ordinal, mapped);
    *at = mapped;
    return code;
}
extern "C" void arena_unmap(uint64_t at, size_t size) { unmap(at, size); }
// Nothing that lies there may be alive, and torch must not allocate from it.
extern "C" void arena_release() {
    if (base) unmap(base, total);
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
