// Happens-before between warps: vector clocks (Mattern 1989; FastTrack: Flanagan, Freund, PLDI 2009, for the comparison
// of one access with a clock). A warp's time advances whenever its lanes meet or it releases; within one time, lanes of
// a warp are not ordered with each other, so that an epoch also names the lanes that it covers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::ptx {

using WarpId = std::uint32_t;  // unique over all launches of a process, from 1

// All that a warp did before the time `all_before`, and what `lanes` did up to the time `until`.
struct Epoch {
  std::uint32_t all_before = 0;
  std::uint32_t until = 0;
  std::uint32_t lanes = 0;
  void join(Epoch other) {
    all_before = std::max(all_before, other.all_before);
    until = std::max(until, other.until);
    lanes |= other.lanes;
  }
  bool covers(std::uint32_t time, std::uint32_t lane) const {
    return time < all_before || (time <= until && (lanes >> lane & 1U) != 0);
  }
};

class Clock {
 public:
  Epoch of(WarpId warp) const {
    const auto at = find(warp);
    return at != known_.end() && at->first == warp ? at->second : Epoch{};
  }
  void join(WarpId warp, Epoch epoch) {
    const auto at = find(warp);
    if (at != known_.end() && at->first == warp) {
      known_[static_cast<std::size_t>(at - known_.begin())].second.join(epoch);
    } else {
      known_.insert(at, {warp, epoch});
    }
  }
  void join(const Clock& other) {
    if (known_.empty()) {
      known_ = other.known_;
      return;
    }
    std::vector<std::pair<WarpId, Epoch>> all;
    all.reserve(known_.size() + other.known_.size());
    auto a = known_.begin();
    auto b = other.known_.begin();
    while (a != known_.end() && b != other.known_.end()) {
      if (a->first < b->first) {
        all.push_back(*a++);
      } else if (b->first < a->first) {
        all.push_back(*b++);
      } else {
        all.push_back(*a++);
        all.back().second.join((b++)->second);
      }
    }
    all.insert(all.end(), a, known_.end());
    all.insert(all.end(), b, other.known_.end());
    known_ = std::move(all);
  }
  void clear() { known_.clear(); }
  bool empty() const { return known_.empty(); }

 private:
  std::vector<std::pair<WarpId, Epoch>>::const_iterator find(WarpId warp) const {
    return std::lower_bound(known_.begin(), known_.end(), warp,
                            [](const auto& known, WarpId wanted) { return known.first < wanted; });
  }
  std::vector<std::pair<WarpId, Epoch>> known_;  // by warp
};

// A view that a release hands on: all that happened before it, and of that, what is also visible to the asynchronous
// proxy (PTX ISA, "Memory Consistency Model", proxies), after a fence.proxy.async.
struct View {
  Clock all;
  Clock async;
  void join(const View& other) {
    all.join(other.all);
    async.join(other.async);
  }
  void clear() {
    all.clear();
    async.clear();
  }
};

}  // namespace lockstep::ptx
