// A first-fit allocator over memory that the judge created. It serves one zone at a time: the judge
// says which part of the arena allocations come from. Blocks still alive when the zone changes stay
// valid and are not handed out again (a candidate may keep scratch memory), but the judge overwrites
// a zone before each window, so nothing computed in one call is there to be found by the next.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace warpwright {

class Zone {
  public:
    static constexpr size_t kAlign = 512;

    // Allocations come from [offset, offset + size) from now on, less what is alive there.
    void reset(size_t offset, size_t size) {
        std::lock_guard<std::mutex> guard(mutex_);
        begin_ = offset;
        end_ = offset + size;
        free_.clear();
        size_t at = begin_;
        for (const auto& [start, length] : used_) {
            if (start + length <= begin_ || start >= end_) continue;
            if (start > at) free_[at] = start - at;
            at = start + length;
        }
        if (at < end_) free_[at] = end_ - at;
    }

    // Offset of `size` bytes, or SIZE_MAX when nothing fits.
    size_t take(size_t size) {
        std::lock_guard<std::mutex> guard(mutex_);
        size = size ? (size + kAlign - 1) / kAlign * kAlign : kAlign;
        for (auto block = free_.begin(); block != free_.end(); ++block) {
            if (block->second < size) continue;
            const size_t offset = block->first, length = block->second;
            free_.erase(block);
            if (length > size) free_[offset + size] = length - size;
            used_[offset] = size;
            return offset;
        }
        return SIZE_MAX;
    }

    void give(size_t offset) {
        std::lock_guard<std::mutex> guard(mutex_);
        auto block = used_.find(offset);
        if (block == used_.end()) return;
        size_t size = block->second;
        used_.erase(block);
        if (offset < begin_ || offset + size > end_) return;  // of an earlier zone
        auto next = free_.lower_bound(offset);
        if (next != free_.end() && offset + size == next->first) {
            size += next->second;
            next = free_.erase(next);
        }
        if (next != free_.begin()) {
            auto before = std::prev(next);
            if (before->first + before->second == offset) {
                before->second += size;
                return;
            }
        }
        free_[offset] = size;
    }

  private:
    std::mutex mutex_;
    size_t begin_ = 0, end_ = 0;
    std::map<size_t, size_t> free_, used_;  // length by offset
};

}  // namespace warpwright
