// When each task of a step ran: what the simulator and the emulated device give, and what is drawn.
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
