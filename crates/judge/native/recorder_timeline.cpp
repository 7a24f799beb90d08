// The order that streams and events impose on operations.
#include "recorder_timeline.h"

#include <algorithm>

namespace recorder {

void join(Clock& clock, const Clock& other) {
    for (const auto& [stream, operation] : other) {
        const auto [at, added] = clock.emplace(stream, operation);
        if (!added) at->second = std::max(at->second, operation);
    }
}

bool covers(const Clock& clock, const Clock& other) {
    return std::all_of(other.begin(), other.end(), [&](const auto& entry) {
        const auto at = clock.find(entry.first);
        return at != clock.end() && at->second >= entry.second;
    });
}

std::vector<uint32_t> Timeline::add(const Stream& stream) {
    const uint32_t number = static_cast<uint32_t>(clocks_.size());
    Clock before = reached(stream);
    const Clock& ordered = ordered_[&stream];
    std::vector<uint32_t> after;
    for (const auto& [other, operation] : before) {
        const Clock single = {{other, operation}};
        const auto implied = [&, other = other](const auto& entry) {
            return entry.first != other && covers(clocks_[entry.second], single);
        };
        if (other == &stream || covers(ordered, single) || std::any_of(before.begin(), before.end(), implied))
            continue;
        after.push_back(operation);
    }
    std::sort(after.begin(), after.end());
    before[&stream] = number;
    reached_[&stream] = ordered_[&stream] = before;
    clocks_.push_back(std::move(before));
    return after;
}

Clock Timeline::reached(const Stream& stream) const {
    Clock clock = host_;
    const auto found = reached_.find(&stream);
    if (found != reached_.end()) join(clock, found->second);
    return clock;
}

Clock Timeline::all() const {
    Clock clock;
    for (const auto& entry : ordered_) join(clock, entry.second);
    return clock;
}

}  // namespace recorder
