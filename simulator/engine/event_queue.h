// A queue of future events: earliest first, those at the same time in the order of their codes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::simulator {

struct Event {
  std::int64_t time_ps = 0;
  std::uint64_t code = 0;  // kind of event; defined by the engine
  friend bool operator<(const Event& a, const Event& b) {
    return a.time_ps != b.time_ps ? a.time_ps < b.time_ps : a.code < b.code;
  }
};

// A heap with four children per node: half as deep as a binary heap, and children share a cache line.
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }

  void push(const Event& event) {
    std::size_t at = heap_.size();
    heap_.push_back(event);
    while (at > 0 && event < heap_[(at - 1) / 4]) {
      heap_[at] = heap_[(at - 1) / 4];
      at = (at - 1) / 4;
    }
    heap_[at] = event;
  }

  Event pop() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return first;
  }

 private:
  void sink(const Event& event) {
    std::size_t at = 0;
    for (std::size_t child = 1; child < heap_.size(); child = 4 * at + 1) {
      const std::size_t end = std::min(child + 4, heap_.size());
      std::size_t least = child;
      for (std::size_t other = child + 1; other < end; ++other) {
        if (heap_[other] < heap_[least]) least = other;
      }
      if (!(heap_[least] < event)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = event;
  }

  std::vector<Event> heap_;
};

}  // namespace lockstep::simulator
