// Work in the bubbles of a pipeline: the steps with that work, and the share of the bubbles that it fills.
#pragma once

#include "bench/pipeline/cases.h"
#include "bench/pipeline/result.h"
#include "core/record.h"
#include "schedules/step/step.h"

namespace lockstep::pipeline {

// Puts the work of flags.filler into the bubbles of a step, and simulates each of the steps that this takes. They take
// as long as the step with empty bubbles, which is checked. Throws a usage Error if a kernel of the work is longer than
// every bubble of its rank.
Filled fill(const Case& one, const PipelineFlags& flags, const schedules::Step& plain);

// The steps of a refresh concatenated, for drawings.
core::TimelineRecord timeline_record(const Filled& filled);

}  // namespace lockstep::pipeline
