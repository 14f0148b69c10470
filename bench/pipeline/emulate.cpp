#include "bench/pipeline/emulate.h"

#include <algorithm>

namespace lockstep::pipeline {

EmulatedRuns emulate(const schedules::Step& step, const simulator::EmulationOptions& options, int repeat) {
  std::vector<simulator::EmulatedRun> runs;
  EmulatedRuns result;
  for (int i = 0; i < repeat; ++i) {
    const simulator::EmulatedRun& run = runs.emplace_back(simulator::run_emulated(step, options));
    result.emulation.samples_ms.push_back(static_cast<double>(run.makespan_ns) / 1e6);
    result.emulation.late_us = std::max(result.emulation.late_us, static_cast<double>(run.late_ns) / 1e3);
  }
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.makespan_ns < b.makespan_ns; });
  result.timeline = std::move(runs[runs.size() / 2].timeline);
  return result;
}

}  // namespace lockstep::pipeline
