// Results of moe_bench as records (docs/record_format.md).
#pragma once

#include "bench/experts/flags.h"
#include "bench/experts/run.h"
#include "core/record.h"

namespace lockstep::experts_bench {

core::RunRecord run_record(const ExpertsFlags& flags);
core::ExpertsRecord experts_record(const core::RunRecord& run, const ExpertsFlags& flags, const Case& one,
                                   const Result& result);

}  // namespace lockstep::experts_bench
