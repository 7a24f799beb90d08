// Allocations, fills and copies. While memory is open, the host performs them at once.
#include <cstring>

#include "recorder.h"

namespace recorder {
namespace {

// Larger contents belong into weights, or into memory that prepare() writes while it is open.
constexpr size_t kMostUpload = size_t(1) << 20;

struct Rows {
    size_t width, height, to_pitch, from_pitch;
};

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }
Place at(const void* address) { return {number(address), nullptr}; }

void fill_on_host(char* to, const Fill& fill) {
    for (uint64_t row = 0; row < fill.height; row++)
        for (uint64_t i = 0; i < fill.width; i++)
            memcpy(to + row * fill.pitch + i * fill.element, &fill.value, fill.element);
}

cudaError_t fill(Stream& stream, const Fill& fill) {
    if (!fill.width || !fill.height) return cudaSuccess;
    void* to = reinterpret_cast<void*>(fill.to.address);
    if (!is_device(to)) return fail(cudaErrorInvalidValue);
    if (!runs_on_host(stream)) return record(stream, fill);
    fill_on_host(static_cast<char*>(to), fill);
    return cudaSuccess;
}

cudaError_t copy_on_host(void* to, const void* from, const Rows& rows) {
    for (size_t row = 0; row < rows.height; row++)
        memmove(static_cast<char*>(to) + row * rows.to_pitch,
                static_cast<const char*>(from) + row * rows.from_pitch, rows.width);
    return cudaSuccess;
}

// Pageable or pinned: the bytes are those of the moment of the call.
cudaError_t upload(Stream& stream, const Place& to, const void* from, size_t bytes) {
    if (is_capturing(stream)) return refused("uploads from the host inside a captured graph");
    if (bytes > kMostUpload) return refused("uploads more than 1 MiB from the host at once");
    Upload made = {to, std::string(static_cast<const char*>(from), bytes)};
    if (holds_tensor_map(made.bytes)) return refused("uploads a tensor map to device memory");
    return record(stream, std::move(made));
}

cudaError_t upload_rows(Stream& stream, void* to, const void* from, const Rows& rows) {
    if (rows.height == 1 || (rows.to_pitch == rows.width && rows.from_pitch == rows.width))
        return upload(stream, at(to), from, rows.width * rows.height);
    for (size_t row = 0; row < rows.height; row++) {
        const cudaError_t error = upload(stream, at(static_cast<char*>(to) + row * rows.to_pitch),
                                         static_cast<const char*>(from) + row * rows.from_pitch, rows.width);
        if (error) return error;
    }
    return cudaSuccess;
}

cudaError_t copy(const char* function, void* to, const void* from, const Rows& rows, cudaMemcpyKind kind,
                 cudaStream_t handle) {
    enter(function);
    Stream* stream = find_stream(handle);
    if (!stream) return fail(cudaErrorInvalidResourceHandle);
    if (!rows.width || !rows.height) return cudaSuccess;
    const bool to_device = is_device(to), from_device = is_device(from);
    const bool as_said = kind == cudaMemcpyDefault ||
                         kind == (to_device ? from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
                                  : from_device ? cudaMemcpyDeviceToHost
                                                : cudaMemcpyHostToHost);
    if (!as_said) return fail(cudaErrorInvalidValue);
    if (!to_device && !from_device) return copy_on_host(to, from, rows);
    if (runs_on_host(*stream)) return copy_on_host(to, from, rows);
    if (!to_device) return refused(std::string("copies device memory to the host (") + function + ")");
    if (!from_device) return upload_rows(*stream, to, from, rows);
    return record(*stream, Copy{at(to), at(from), rows.width, rows.height, rows.to_pitch, rows.from_pitch});
}

// Slices of rows; where they follow each other without gaps they are rows of one copy.
constexpr size_t kMostSlices = 256;

cudaError_t copy_slices(const char* function, const cudaMemcpy3DParms* p, cudaStream_t handle) {
    enter(function);
    if (!p) return fail(cudaErrorInvalidValue);
    if (p->srcArray || p->dstArray) return refused(std::string("copies a CUDA array (") + function + ")");
    const auto start = [](const cudaPitchedPtr& of, const cudaPos& at) {
        return static_cast<char*>(of.ptr) + (at.z * of.ysize + at.y) * of.pitch + at.x;
    };
    char *to = start(p->dstPtr, p->dstPos), *from = start(p->srcPtr, p->srcPos);
    const size_t to_slice = p->dstPtr.pitch * p->dstPtr.ysize, from_slice = p->srcPtr.pitch * p->srcPtr.ysize;
    const auto [width, height, depth] = p->extent;
    if (height == 1) return copy(function, to, from, {width, depth, to_slice, from_slice}, p->kind, handle);
    const bool whole = height == p->dstPtr.ysize && height == p->srcPtr.ysize;
    Rows rows = {width, whole ? height * depth : height, p->dstPtr.pitch, p->srcPtr.pitch};
    const size_t copies = whole ? 1 : depth;
    if (copies > kMostSlices) return refused(std::string("copies more than 256 slices at once (") + function + ")");
    for (size_t i = 0; i < copies; i++) {
        const cudaError_t error = copy(function, to + i * to_slice, from + i * from_slice, rows, p->kind, handle);
        if (error) return error;
    }
    return cudaSuccess;
}

cudaError_t to_symbol(const char* function, const void* symbol, const void* from, size_t bytes, size_t offset,
                      cudaStream_t handle) {
    enter(function);
    Stream* stream = find_stream(handle);
    const Variable* variable = find_variable(symbol);
    if (!stream) return fail(cudaErrorInvalidResourceHandle);
    if (!variable) return fail(cudaErrorInvalidSymbol);
    if (offset > variable->bytes || bytes > variable->bytes - offset) return fail(cudaErrorInvalidValue);
    if (!bytes) return cudaSuccess;
    index_of(*variable->module);
    const Place to = {offset, variable};
    if (!is_device(from)) return upload(*stream, to, from, bytes);
    return record(*stream, Copy{to, at(from), bytes, 1, bytes, bytes});
}

cudaError_t from_symbol(const char* function, void* to, const void* symbol, size_t bytes, size_t offset,
                        cudaStream_t handle) {
    enter(function);
    Stream* stream = find_stream(handle);
    const Variable* variable = find_variable(symbol);
    if (!stream) return fail(cudaErrorInvalidResourceHandle);
    if (!variable) return fail(cudaErrorInvalidSymbol);
    if (!is_device(to)) return refused(std::string("copies device memory to the host (") + function + ")");
    if (offset > variable->bytes || bytes > variable->bytes - offset) return fail(cudaErrorInvalidValue);
    if (!bytes) return cudaSuccess;
    index_of(*variable->module);
    return record(*stream, Copy{at(to), {offset, variable}, bytes, 1, bytes, bytes});
}

cudaError_t set(const char* function, void* to, int value, const Rows& rows, cudaStream_t handle) {
    enter(function);
    Stream* stream = find_stream(handle);
    if (!stream) return fail(cudaErrorInvalidResourceHandle);
    return fill(*stream, {at(to), static_cast<uint32_t>(value & 255), 1, rows.width, rows.height, rows.to_pitch});
}

}  // namespace
}  // namespace recorder

using namespace recorder;

// For torch's fills: elements of 1, 2 or 4 bytes in a row.
extern "C" void recorder_fill(uint64_t to, uint32_t value, uint32_t element, uint64_t count, cudaStream_t handle) {
    if (Stream* stream = find_stream(handle))
        fill(*stream, {{to, nullptr}, value, element, count, 1, count * element});
}

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
    enter(__func__);
    *out = bytes ? allocate(bytes) : nullptr;
    return *out || !bytes ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t) { return cudaMalloc(out, bytes); }
cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(out, *pitch * height);
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t) {
    enter(__func__);
    return !address || release(address) ? cudaSuccess : fail(cudaErrorInvalidValue);
}
cudaError_t cudaFree(void* address) {
    enter(__func__);
    if (address) wait_for_all();
    return cudaFreeAsync(address, nullptr);
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
    *out = bytes ? allocate_pinned(bytes) : nullptr;
    return *out || !bytes ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocHost(void** out, size_t bytes) { return cudaHostAlloc(out, bytes, cudaHostAllocDefault); }
cudaError_t cudaFreeHost(void*) { return cudaSuccess; }

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    return set(__func__, to, value, {bytes, 1, bytes, 0}, stream);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    return set(__func__, to, value, {bytes, 1, bytes, 0}, nullptr);
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
    return set(__func__, to, value, {width, height, pitch, 0}, stream);
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
    return set(__func__, to, value, {width, height, pitch, 0}, nullptr);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(__func__, to, from, {bytes, 1, bytes, bytes}, kind, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return copy(__func__, to, from, {bytes, 1, bytes, bytes}, kind, nullptr);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(__func__, to, from, {width, height, to_pitch, from_pitch}, kind, stream);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
    return copy(__func__, to, from, {width, height, to_pitch, from_pitch}, kind, nullptr);
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters, cudaStream_t stream) {
    return copy_slices(__func__, parameters, stream);
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* parameters) { return copy_slices(__func__, parameters, nullptr); }

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind, cudaStream_t stream) {
    return to_symbol(__func__, symbol, from, bytes, offset, stream);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind) {
    return to_symbol(__func__, symbol, from, bytes, offset, nullptr);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind,
                                      cudaStream_t stream) {
    return from_symbol(__func__, to, symbol, bytes, offset, stream);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind) {
    return from_symbol(__func__, to, symbol, bytes, offset, nullptr);
}
cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
    const Variable* variable = find_variable(symbol);
    if (!variable) return fail(cudaErrorInvalidSymbol);
    *bytes = variable->bytes;
    return cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void**, const void*) {
    return refused("asks for the address of a variable on the device (cudaGetSymbolAddress)");
}

}  // extern "C"
