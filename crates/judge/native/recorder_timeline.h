// The order that streams and events impose on operations.
#pragma once
#include "recorder.h"

namespace recorder __attribute__((visibility("hidden"))) {

// The last operation of each stream that has happened before something.
using Clock = std::map<const Stream*, uint32_t>;

void join(Clock& clock, const Clock& other);
bool covers(const Clock& clock, const Clock& other);

// Operations of one phase, or of one captured graph, counted from 0.
class Timeline {
  public:
    // Adds the next operation; returns those of other streams that it has to wait for by itself.
    std::vector<uint32_t> add(const Stream& stream);
    // The next operation of the stream follows `clock`.
    void wait(const Stream& stream, const Clock& clock) { join(reached_[&stream], clock); }
    // Every later operation follows `clock`.
    void wait_everywhere(const Clock& clock) { join(host_, clock); }
    // What the next operation of a stream will follow.
    Clock reached(const Stream& stream) const;
    // What has been recorded so far.
    Clock all() const;
    // What an operation follows, itself included.
    const Clock& clock(uint32_t operation) const { return clocks_[operation]; }

  private:
    std::map<const Stream*, Clock> reached_, ordered_;
    std::vector<Clock> clocks_;
    Clock host_;
};

}  // namespace recorder
