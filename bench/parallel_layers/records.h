// Results of tp_linear_bench as records (docs/record_format.md).
#pragma once

#include "bench/parallel_layers/flags.h"
#include "bench/parallel_layers/run.h"
#include "core/record.h"

namespace lockstep::layer_bench {

core::RunRecord run_record(const LayerFlags& flags);
core::LayerRecord layer_record(const core::RunRecord& run, const LayerFlags& flags, const Case& one, const Form& form);

}  // namespace lockstep::layer_bench
