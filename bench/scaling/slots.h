// The order in which the tasks of a step are timed, and which of them run concurrently. The tasks of a slot do; nothing
// else runs meanwhile.
//
// Every order of slots that is made here is one in which the step may run: a task's slot comes after those of all that
// it waits for. So pieces are timed in their place, on the tensors that they work on in training.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::scaling {

struct TaskPlace {
  std::int32_t rank = 0;
  std::uint32_t task = 0;  // in RankStep::tasks
  friend bool operator==(const TaskPlace&, const TaskPlace&) = default;
};

// Kernels of different ranks, and one collective, or one end of a message.
struct Slot {
  std::vector<TaskPlace> kernels;
  std::vector<TaskPlace> collective;  // one on each member
  std::vector<TaskPlace> other;       // a send, a receive, or a task that is no kernel of the compute lane: one
  std::size_t size() const { return kernels.size() + collective.size() + other.size(); }
};

// The tasks that may share a slot.
struct Concurrency {
  std::int32_t kernels = 1;  // the most ranks that compute at the same time
  // Lanes whose collectives run beside kernels of their members: these have threads of their own.
  std::array<bool, schedules::kNumLanes> beside = {};
};

std::vector<Slot> slots_of(const schedules::Step& step, const Concurrency& concurrency);

}  // namespace lockstep::scaling
