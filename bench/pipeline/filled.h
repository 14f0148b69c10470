// Work in the bubbles of a pipeline: steps with it, and how full they are.
#pragma once

#include "bench/pipeline/cases.h"
#include "bench/pipeline/result.h"
#include "core/record.h"
#include "schedules/step/step.h"

namespace lockstep::pipeline {

// Puts the work of flags.filler into the bubbles of a step, and simulates each of the steps that this takes. They are
// as long as the step with empty bubbles, or that is a bug. Throws a usage Error where a kernel of the work is longer
// than every bubble of its rank.
Filled fill(const Case& one, const PipelineFlags& flags, const schedules::Step& plain);

// The steps of a refresh one behind the other, as a drawing has them.
core::TimelineRecord timeline_record(const Filled& filled);

}  // namespace lockstep::pipeline
