// Results as records (docs/record_format.md).
#pragma once

#include "bench/scaling/flags.h"
#include "bench/scaling/result.h"
#include "core/record.h"

namespace lockstep::scaling {

// `most_ranks`: maximum over layouts.
core::RunRecord run_record(const ScalingFlags& flags, const trainer::TrainOptions& options, int most_ranks);
core::RunRecord simulated_run(core::RunRecord run);  // the run of simulated layouts in the same process
core::ScalingRecord scaling_record(const core::RunRecord& run, const Result& result);

}  // namespace lockstep::scaling
