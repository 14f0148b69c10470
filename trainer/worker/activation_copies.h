// Runs a rank's OFFLOAD and LOAD tasks of activations (schedules/passes/offload.h).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "parallel/memory/memory.h"
#include "parallel/parameters/tensors_away.h"
#include "schedules/step/step.h"

namespace lockstep::trainer {

// Slots in the offload buffer for each of a rank's copies, in lane order. A slot is free again once its contents are
// back on the device, so the buffer has the size of the most bytes that are away at once.
struct CopySlots {
  std::vector<parallel::TensorsAway::Slot> of_task;  // [task]; empty for tasks that are not copies
  std::int64_t room_bytes = 0;
};
// `bytes` of each task (workload::copied_bytes).
CopySlots slots_of_copies(const schedules::RankStep& rank, const std::vector<std::int64_t>& bytes);

class ActivationCopies {
 public:
  ActivationCopies(parallel::Memory& memory, const parallel::MakeStateRoom& make_room, CopySlots slots)
      : slots_(std::move(slots)), away_(memory, make_room, slots_.room_bytes) {}

  // `kept`: the tensors of the task's part and microbatch, in the same order for both copies. Called by the thread of
  // lane copy.
  void run(const schedules::Task& task, std::uint32_t index, std::span<parallel::Tensor* const> kept) {
    const parallel::TensorsAway::Slot& slot = slots_.of_task[index];
    if (slot.bytes == 0) return;
    if (task.op == schedules::Op::offload) {
      away_.take(slot, kept);
    } else {
      away_.bring_back(slot, kept);
    }
  }

  std::int64_t moved_bytes() const { return away_.moved_bytes(); }  // so far
  std::int64_t room_bytes() const { return slots_.room_bytes; }

 private:
  CopySlots slots_;
  parallel::TensorsAway away_;
};

}  // namespace lockstep::trainer
