// Results of ddp_overlap_bench as records (docs/record_format.md).
#pragma once

#include "bench/parallel/ddp_flags.h"
#include "bench/parallel/ddp_result.h"
#include "core/record.h"

namespace lockstep::parallel_bench {

// Each row is a run of its own because a run has exactly one link: emulated if the row has one, measured otherwise.
void write_ddp_records(core::RecordWriter& writer, const DdpFlags& flags, const DdpCase& one, const DdpResult& result);

}  // namespace lockstep::parallel_bench
