#include "simulator/engine/filled.h"

#include <utility>

#include "core/error.h"

namespace lockstep::simulator {
namespace {

// Picoseconds of kernels, over all ranks.
double kernels_ps(const schedules::Step& step) {
  double ps = 0;
  for (const schedules::RankStep& rank : step.of_rank) {
    for (const schedules::Task& task : rank.tasks) {
      if (task.lane == schedules::Lane::compute) ps += static_cast<double>(task.amount);
    }
  }
  return ps;
}

}  // namespace

FilledSteps filled_steps(const schedules::Step& step, const std::vector<std::vector<schedules::FillerItem>>& items,
                         const std::function<Simulation(const schedules::Step&)>& simulate) {
  const Simulation without = simulate(step);
  FilledSteps filled{.steps = schedules::fill_bubbles(step, without.timeline, items),
                     .makespan_ps = without.makespan_ps};
  double filler_ps = 0;
  for (const schedules::Step& with : filled.steps) {
    Simulation simulation = simulate(with);
    LOCKSTEP_CHECK(simulation.makespan_ps == without.makespan_ps, "work in the bubbles does not lengthen the step");
    filled.timelines.push_back(std::move(simulation.timeline));
    filler_ps += kernels_ps(with) - kernels_ps(step);
  }
  double idle_ps = 0;
  for (const std::int64_t ps : schedules::bubble_ps_of_ranks(step, without.timeline)) {
    idle_ps += static_cast<double>(ps);
  }
  const auto steps = static_cast<double>(filled.steps.size());
  const double all_ps = static_cast<double>(step.num_ranks()) * static_cast<double>(without.makespan_ps);
  filled.idle = idle_ps / all_ps;
  filled.filled = filler_ps / (steps * idle_ps);
  filled.utilization = (filler_ps / steps + kernels_ps(step)) / all_ps;
  return filled;
}

double utilization_of(const schedules::Step& step, double makespan_ps) {
  return kernels_ps(step) / (static_cast<double>(step.num_ranks()) * makespan_ps);
}

}  // namespace lockstep::simulator
