// When each task of a step ran: the result of the simulator and the emulated device, and the input of plots.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::schedules {

struct TaskSpan {
  std::int64_t start_ps = 0;
  std::int64_t end_ps = 0;
};

// [rank][task], from the start of the step.
using StepTimeline = std::vector<std::vector<TaskSpan>>;

}  // namespace lockstep::schedules
