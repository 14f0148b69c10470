// In which company the tasks of a step are timed. A wave is what runs at the same time; nothing else does meanwhile.
//
// Every order of waves that is made here is one in which the step may run: a task's wave comes after those of all that
// it waits for. So pieces are timed where they stand, on the tensors that they work on in training.
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

// Kernels of different ranks; the two ends of nothing else but one collective, or one message's end.
struct Wave {
  std::vector<TaskPlace> kernels;
  std::vector<TaskPlace> collective;  // one on each member
  std::vector<TaskPlace> other;       // a send, a receive, or what is no kernel of the compute lane: one task
  std::size_t size() const { return kernels.size() + collective.size() + other.size(); }
};

struct Company {
  std::int32_t kernels = 1;  // at most so many ranks compute at the same time
  // Lanes whose collectives run beside kernels of their members: these have threads of their own.
  std::array<bool, schedules::kNumLanes> beside = {};
};

std::vector<Wave> waves_of(const schedules::Step& step, const Company& company);

}  // namespace lockstep::scaling
