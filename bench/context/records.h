// Results of seqpar_bench as records (docs/record_format.md).
#pragma once

#include "bench/context/flags.h"
#include "bench/context/run.h"
#include "core/record.h"

namespace lockstep::context_bench {

core::RunRecord run_record(const ContextFlags& flags);
core::ContextRecord context_record(const core::RunRecord& run, const ContextFlags& flags,
                                   const parallel::ContextLayer& layer, const Result& result);

}  // namespace lockstep::context_bench
