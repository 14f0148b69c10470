// The parts of the engine (engine.h): its queue of events, a rank's tasks in its form, and the text of a deadlock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::simulator {

// A queue of future events: earliest first, those at the same time in the order of their codes.

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

// The text of a deadlock: the task at which each rank is blocked.

// Appends "rank 0, lane receive, at 1RECV_F2 from rank 3"; after a few entries appends "..." instead.
void add_waiter(std::string& text, std::int32_t rank, const schedules::Task& task);

// A rank's tasks in the engine's form: lane by lane, with edges as "this many tasks of that lane are done".

enum class TaskKind : std::uint8_t { kernel, send, receive, collective };
TaskKind kind_of(const schedules::Task& task);

struct LaneProgress {
  std::uint32_t lane : 4;
  std::uint32_t count : 28;  // number of the lane's tasks that have to be done
};
static_assert(schedules::kNumLanes <= 16);

struct LaneTask {
  std::int64_t amount = 0;
  std::int32_t peer = -1;
  std::int32_t tag = -1;
  std::uint32_t index = 0;  // in RankStep::tasks
  std::uint32_t first_after = 0;
  std::uint16_t num_after = 0;
  TaskKind kind = TaskKind::kernel;
  schedules::Comm comm = schedules::Comm::none;
};

// Consecutive tasks that the host issues without waiting for the device between them.
struct IssueRun {
  std::uint32_t end = 0;       // index in RankStep::tasks after the last one
  std::uint32_t num_core = 0;  // tasks before `end` that the host waits for before it continues
};
// True for lanes that the host waits for: kernels, messages and collectives between kernels, but not overlapped gathers
// and reductions.
bool is_core(schedules::Lane lane);

struct RankProgram {
  std::vector<LaneTask> tasks;                                     // sorted by lane
  std::array<std::uint32_t, schedules::kNumLanes + 1> first = {};  // first index of each lane in `tasks`, and the end
  std::vector<LaneProgress> after;
  std::uint32_t num_receives = 0;
  // Host time to issue each task of RankStep::tasks and all before it; empty if the host is no limit.
  std::vector<std::int64_t> issued_ps;
  std::vector<IssueRun> runs;
};

RankProgram compile(const schedules::RankStep& rank);

}  // namespace lockstep::simulator
