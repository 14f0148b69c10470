// A StageWorker that starts a rank's tasks in slots (slots.h): all tasks of a slot at the same moment, and none before
// the previous slot has ended on all ranks of this process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "bench/scaling/slots.h"
#include "collectives/backends/mesh.h"
#include "schedules/interpreter/stage_worker.h"

namespace lockstep::scaling {

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
