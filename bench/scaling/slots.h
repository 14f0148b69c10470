// The order in which the tasks of a step are timed, in slots: the tasks of a slot run concurrently, and nothing else
// does.
//
// Every order of slots made here is valid for the step: a task's slot comes after those of all its dependences. Pieces
// are therefore timed in their place in the step, on the tensors of training.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/backends/mesh.h"
#include "schedules/interpreter/interpreter.h"
#include "schedules/step/step.h"

namespace lockstep::scaling {

struct TaskPlace {
  std::int32_t rank = 0;
  std::uint32_t task = 0;  // in RankStep::tasks
  friend bool operator==(const TaskPlace&, const TaskPlace&) = default;
};

// Kernels of different ranks and one collective, or one end of a message.
struct Slot {
  std::vector<TaskPlace> kernels;
  std::vector<TaskPlace> collective;  // one task per member
  std::vector<TaskPlace> other;  // a send, a receive, or a task that is not a kernel of the compute lane: at most one
  std::size_t size() const { return kernels.size() + collective.size() + other.size(); }
};

// Limits on the tasks that may share a slot.
struct Concurrency {
  std::int32_t kernels = 1;  // maximum number of ranks that compute at the same time
  // Lanes whose collectives overlap with kernels of their members: these have threads of their own.
  std::array<bool, schedules::kNumLanes> beside = {};
};

std::vector<Slot> slots_of(const schedules::Step& step, const Concurrency& concurrency);

// A StageWorker that starts a rank's tasks in slots (slots.h): all tasks of a slot at the same moment, and none before
// the previous slot has ended on all ranks of this process.

// State shared by the ranks: numbers of tasks that have begun and ended since it was made.
struct SlotProgress {
  alignas(128) std::atomic<std::uint64_t> begun{0};
  alignas(128) std::atomic<std::uint64_t> ended{0};
};

// A rank's part of an order of slots.
struct RankSlots {
  struct Entry {
    std::uint64_t before = 0;  // tasks in earlier slots
    std::uint64_t with = 0;    // tasks in earlier slots and in its own
  };
  std::vector<Entry> of_task;
  std::uint64_t all = 0;  // tasks of a step, on all ranks
};
RankSlots rank_slots_of(const std::vector<Slot>& slots, const schedules::Step& step, std::int32_t rank);

class SlotWorker final : public schedules::StageWorker {
 public:
  // For one step, after `steps_before` others with the same `progress`. The arguments must outlive this. If work is
  // queued, a task has ended once the device is done with it.
  SlotWorker(schedules::StageWorker& worker, SlotProgress& progress, const RankSlots& mine, std::uint64_t steps_before,
             backends::MeshRank& mesh, std::chrono::milliseconds timeout)
      : worker_(worker),
        progress_(progress),
        mine_(mine),
        base_(steps_before * mine.all),
        mesh_(mesh),
        timeout_(timeout) {}

  bool begin(std::uint32_t task) override;
  bool ended(std::uint32_t task) override;
  void idle(int thread) override;
  void finish() override { worker_.finish(); }
  schedules::TaskSpan span_of(std::uint32_t task) const override { return worker_.span_of(task); }

 private:
  schedules::StageWorker& worker_;
  SlotProgress& progress_;
  const RankSlots& mine_;
  const std::uint64_t base_;
  backends::MeshRank& mesh_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace lockstep::scaling
