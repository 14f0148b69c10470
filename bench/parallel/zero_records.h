// Results of zero_bench as records (docs/record_format.md).
#pragma once

#include "bench/parallel/zero_run.h"
#include "core/record.h"

namespace lockstep::parallel_bench {

core::RunRecord zero_run_record(const ZeroFlags& flags);
core::ShardingRecord sharding_record(const core::RunRecord& run, const ZeroFlags& flags, const ZeroRow& row,
                                     const ZeroResult& result);

}  // namespace lockstep::parallel_bench
