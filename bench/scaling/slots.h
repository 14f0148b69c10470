// The order in which the tasks of a step are timed, in slots: the tasks of a slot run concurrently, and nothing else
// does.
//
// Every order of slots made here is valid for the step: a task's slot comes after those of all its dependences. Pieces
// are therefore timed in their place in the step, on the tensors of training.
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

}  // namespace lockstep::scaling
