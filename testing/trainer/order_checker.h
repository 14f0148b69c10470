// Finds work on a device that touches the same memory without an order between the two: by vector clocks (Mattern
// 1988, "Virtual time and global states of distributed systems") of the host and of each stream. What runs when does
// not matter: two uses are in order if waits make it so, and only then.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::trainer {

struct MemoryUse {
  const void* begin = nullptr;
  std::size_t size_bytes = 0;
  bool writes = false;
};

class OrderChecker {
 public:
  using Clock = std::vector<std::uint64_t>;  // [agent]; the host is agent 0, streams follow

  std::size_t add_stream() {
    clocks_.emplace_back();
    return clocks_.size() - 1;
  }

  // Work that the host queues on a stream, or does itself (agent 0).
  void work(std::size_t agent, const std::string& what, const std::vector<MemoryUse>& uses) {
    join(clocks_[agent], clocks_[0]);
    Clock& clock = clocks_[agent];
    clock.resize(std::max(clock.size(), agent + 1));
    texts_.push_back(what);
    const Use use{agent, ++clock[agent], texts_.size() - 1};
    for (const MemoryUse& memory : uses) touch(memory, use, clock);
  }
  Clock now(std::size_t agent) const { return clocks_[agent]; }
  void wait(std::size_t agent, const Clock& clock) { join(clocks_[agent], clock); }

  // Whether all work of `other` so far is before what comes on `agent` now.
  bool is_behind(std::size_t agent, std::size_t other) const {
    const Clock& mine = clocks_[agent];
    const Clock& its = clocks_[other];
    return its.size() <= other || its[other] == 0 || (mine.size() > other && mine[other] >= its[other]);
  }

  // Nobody uses it any more, as somebody else makes sure of.
  void forget(const void* begin, std::size_t size_bytes) {
    const auto from = reinterpret_cast<std::uintptr_t>(begin);
    split(from);
    split(from + size_bytes);
    segments_.erase(segments_.lower_bound(from), segments_.lower_bound(from + size_bytes));
  }

  // "A writes what B reads", each once.
  const std::vector<std::string>& races() const { return races_; }

 private:
  struct Use {
    std::size_t agent = 0;
    std::uint64_t time = 0;  // 0: none
    std::size_t what = 0;    // in texts_
  };
  struct Segment {
    std::uintptr_t end = 0;
    Use write = {};
    std::vector<Use> reads = {};  // since then; the last of each agent
  };

  static void join(Clock& clock, const Clock& other) {
    clock.resize(std::max(clock.size(), other.size()));
    for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
  }
  static bool is_before(const Use& use, const Clock& clock) {
    return use.time == 0 || (use.agent < clock.size() && clock[use.agent] >= use.time);
  }

  void split(std::uintptr_t at) {
    auto after = segments_.lower_bound(at);
    if (after == segments_.begin()) return;
    const auto before = std::prev(after);
    if (before->second.end <= at) return;
    segments_.emplace_hint(after, at, before->second);
    before->second.end = at;
  }

  void touch(const MemoryUse& memory, const Use& use, const Clock& clock) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.begin);
    const std::uintptr_t end = begin + memory.size_bytes;
    if (begin == end) return;
    split(begin);
    split(end);
    std::uintptr_t at = begin;
    for (auto it = segments_.lower_bound(begin); it != segments_.end() && it->first < end; ++it) {
      check(it->second, memory.writes, use, clock);
      if (!memory.writes) add_gap(at, it->first, use);
      at = it->second.end;
      if (!memory.writes) add_read(it->second, use);
    }
    if (!memory.writes) return add_gap(at, end, use);
    segments_.erase(segments_.lower_bound(begin), segments_.lower_bound(end));
    segments_.emplace(begin, Segment{.end = end, .write = use});
  }

  void check(const Segment& segment, bool writes, const Use& use, const Clock& clock) {
    if (!is_before(segment.write, clock)) report(use, writes, segment.write, "writes");
    if (!writes) return;
    for (const Use& read : segment.reads) {
      if (!is_before(read, clock)) report(use, writes, read, "reads");
    }
  }
  void add_gap(std::uintptr_t begin, std::uintptr_t end, const Use& use) {
    if (begin < end) segments_.emplace(begin, Segment{.end = end, .reads = {use}});
  }
  static void add_read(Segment& segment, const Use& use) {
    for (Use& read : segment.reads) {
      if (read.agent == use.agent) {
        read = use;
        return;
      }
    }
    segment.reads.push_back(use);
  }

  void report(const Use& use, bool writes, const Use& other, const std::string& does) {
    const std::string text =
        texts_[use.what] + (writes ? " writes what " : " reads what ") + texts_[other.what] + " " + does;
    if (std::find(races_.begin(), races_.end(), text) == races_.end()) races_.push_back(text);
  }

  std::vector<std::string> texts_;
  std::vector<Clock> clocks_ = {Clock{}};
  std::map<std::uintptr_t, Segment> segments_;  // disjoint, by where they begin
  std::vector<std::string> races_;
};

}  // namespace lockstep::trainer
