// A step whose bubbles are filled with other work, in virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/passes/passes.h"
#include "schedules/step/step.h"
#include "simulator/engine/engine.h"

namespace lockstep::simulator {

// The steps that do all of the work once, each as long as the step without it.
struct FilledSteps {
  std::vector<schedules::Step> steps = {};
  std::vector<schedules::StepTimeline> timelines = {};
  std::int64_t makespan_ps = 0;
  double idle = 0;         // share of the time that is bubbles without the work, over all ranks
  double filled = 0;       // share of the bubbles' time
  double utilization = 0;  // share of the steps in which ranks compute
};

// `items`: of each rank (schedules::fill_bubbles). Throws a usage Error if one of them is longer than every bubble of
// its rank.
FilledSteps filled_steps(const schedules::Step& step, const std::vector<std::vector<schedules::FillerItem>>& items,
                         const std::function<Simulation(const schedules::Step&)>& simulate);

// Share of the makespan in which ranks compute.
double utilization_of(const schedules::Step& step, double makespan_ps);

}  // namespace lockstep::simulator
