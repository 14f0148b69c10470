// Results of tp_linear_bench as records (docs/record_format.md).
#pragma once

#include "bench/tp_linear/flags.h"
#include "bench/tp_linear/run.h"
#include "core/record.h"

namespace lockstep::tp_linear {

core::RunRecord run_record(const TpLinearFlags& flags);
core::LayerRecord layer_record(const core::RunRecord& run, const TpLinearFlags& flags, const Case& one,
                               const Form& form);

}  // namespace lockstep::tp_linear
