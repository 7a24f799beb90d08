// Device memory: the judge's file while the host may write (open), addresses without memory afterwards.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <unordered_map>

#include "recorder.h"

namespace recorder {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAlign = 512;
// An address behind a block is still said to belong to it, up to a page.
constexpr uint64_t kSmallestGap = 2 * kPage;
constexpr size_t kMostBlocks = 65536;
constexpr uint64_t kWorthGivingBack = uint64_t(1) << 20;
constexpr uint64_t kClosedBytes = uint64_t(1) << 40;
constexpr uint64_t kPinnedBytes = uint64_t(1) << 36;
constexpr uint64_t kOpenAt = 0x200000000000, kClosedAt = 0x400000000000, kPinnedAt = 0x600000000000;

struct Range {
    uint64_t base = 0, bytes = 0, used = 0;
    bool holds(uint64_t address) const { return address - base < bytes; }
};

Range open_range, closed_range, pinned_range;
int file = -1;
bool is_open = false;
uint64_t noise = 0;
std::vector<Block> all;
std::unordered_map<uint64_t, size_t> alive;  // position among blocks, by address
uint64_t in_use = 0, most = ~uint64_t(0);

// SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t draw() {
    uint64_t z = noise += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

uint64_t rounded_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Blocks share no page: one that the host never touched is recognised by its pages.
uint64_t next_start(const Range& range) {
    const uint64_t page = rounded_up(range.base + range.used, kPage);
    return page + kSmallestGap + kPage * (draw() % 16) + kAlign * (draw() % (kPage / kAlign));
}

uint64_t take(Range& range, size_t bytes) {
    const uint64_t at = next_start(range);
    if (bytes > range.bytes || at + bytes > range.base + range.bytes) return 0;
    range.used = at + bytes - range.base;
    return at;
}

Range reserve(uint64_t at, uint64_t bytes, int protection, int flags, int descriptor) {
    at += draw() % (uint64_t(1) << 31) * kPage;
    void* mapped =
        mmap(reinterpret_cast<void*>(at), bytes, protection, flags | MAP_FIXED_NOREPLACE, descriptor, 0);
    if (mapped == MAP_FAILED) return {};
    return {at, bytes, 0};
}

// Whether no byte of an open block was ever read or written: its pages do not exist.
bool untouched(const Block& block) {
    const uint64_t first = block.address - open_range.base;
    const off_t data = lseek(file, static_cast<off_t>(first / kPage * kPage), SEEK_DATA);
    return data < 0 || static_cast<uint64_t>(data) >= first + block.bytes;
}

// While memory is open, no operation has been recorded that needs what was freed.
void give_pages_back(const Block& block) {
    const uint64_t first = (block.address - open_range.base) / kPage * kPage;
    const uint64_t bytes = rounded_up(block.address - open_range.base + block.bytes, kPage) - first;
    if (bytes < kWorthGivingBack) return;
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
              static_cast<off_t>(bytes));
}

}  // namespace

const std::vector<Block>& blocks() { return all; }
bool memory_open() { return is_open; }
uint64_t bytes_in_use() { return in_use; }
uint64_t device_bytes() { return most; }
void set_device_bytes(uint64_t bytes) { most = bytes; }

bool is_device(const void* address) {
    const uint64_t at = reinterpret_cast<uint64_t>(address);
    return open_range.holds(at) || closed_range.holds(at);
}

void* allocate(size_t bytes) {
    if (bytes > most - in_use) return nullptr;
    if (all.size() == kMostBlocks) refuse("allocates device memory more than 65536 times");
    const uint64_t at = take(is_open ? open_range : closed_range, bytes);
    if (!at) return nullptr;
    in_use += bytes;
    alive[at] = all.size();
    all.push_back({at, bytes, phase(), is_open, nodes_of(phase()), any_capturing(), std::nullopt});
    return reinterpret_cast<void*>(at);
}

bool release(void* address) {
    const auto found = alive.find(reinterpret_cast<uint64_t>(address));
    if (found == alive.end()) return false;
    Block& block = all[found->second];
    if (block.of_graph) return true;
    block.freed = std::make_pair(phase(), nodes_of(phase()));
    in_use -= block.bytes;
    alive.erase(found);
    if (is_open) give_pages_back(block);
    return true;
}

void* allocate_pinned(size_t bytes) {
    const uint64_t at = take(pinned_range, bytes);
    const uint64_t page = at / kPage * kPage;
    void* pages = reinterpret_cast<void*>(page);
    if (!at || mprotect(pages, at + bytes - page, PROT_READ | PROT_WRITE)) return nullptr;
    return reinterpret_cast<void*>(at);
}

void close_memory() {
    if (!is_open) return;
    is_open = false;
    for (const auto& entry : alive) {
        Block& block = all[entry.second];
        // What the host left alone has no contents: kernels fill it.
        if (block.open && block.bytes && untouched(block)) block.open = false;
    }
    mprotect(reinterpret_cast<void*>(open_range.base), open_range.bytes, PROT_NONE);
}

}  // namespace recorder

using namespace recorder;

// Maps the judge's file, whose first `given` bytes are in use. Returns where, or 0.
extern "C" uint64_t recorder_map(int descriptor, uint64_t bytes, uint64_t given, uint64_t seed) {
    noise = seed;
    file = descriptor;
    open_range = reserve(kOpenAt, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor);
    closed_range = reserve(kClosedAt, kClosedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    pinned_range = reserve(kPinnedAt, kPinnedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    open_range.used = given;
    is_open = true;
    return closed_range.base && pinned_range.base ? open_range.base : 0;
}

extern "C" int recorder_open() { return memory_open(); }

// For torch's pluggable allocator, which does not look at a null result; an exception reaches Python.
extern "C" void* recorder_allocate(ssize_t bytes, int, cudaStream_t) {
    enter("the allocator");
    if (bytes <= 0) return nullptr;
    void* at = allocate(static_cast<size_t>(bytes));
    if (!at) throw std::runtime_error("the arena has no room for " + std::to_string(bytes) + " more bytes");
    return at;
}

extern "C" void recorder_release(void* address, ssize_t, int, cudaStream_t) { release(address); }
