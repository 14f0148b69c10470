// A step on emulated devices, several times over.
#pragma once

#include "bench/pipeline/result.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"
#include "simulator/emulated/emulated_run.h"

namespace lockstep::pipeline {

struct EmulatedRuns {
  Emulation emulation;
  schedules::StepTimeline timeline;  // of the run with the median makespan; of an even number, the longer of the two
};

EmulatedRuns emulate(const schedules::Step& step, const simulator::EmulationOptions& options, int repeat);

}  // namespace lockstep::pipeline
