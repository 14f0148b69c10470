// Results of overlap_perf as records (docs/record_format.md).
#pragma once

#include "bench/pipeline/overlap_flags.h"
#include "bench/pipeline/overlap_result.h"
#include "core/record.h"
#include "core/schedule_record.h"

namespace lockstep::pipeline {

core::RunRecord overlap_run_record(const OverlapFlags& flags);
core::ScheduleRecord overlap_record(const core::RunRecord& run, const OverlapFlags& flags, const OverlapCase& one,
                                    const OverlapResult& result);

}  // namespace lockstep::pipeline
