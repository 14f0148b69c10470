// The program zero_bench: text, records, exit status.
#pragma once

#include <string>

#include "bench/parallel/zero_flags.h"
#include "bench/parallel/zero_run.h"
#include "bench/program/program.h"
#include "core/record.h"

namespace lockstep::parallel_bench {

// The text that zero_bench prints, as pure functions of the results.

std::string zero_heading_text(const ZeroFlags& flags);
std::string zero_row_text(const ZeroRow& row, const ZeroResult& result);
std::string zero_ending_text(std::size_t rows, std::size_t wrong);

// Results of zero_bench as records (docs/record_format.md).

core::RunRecord zero_run_record(const ZeroFlags& flags);
core::ShardingRecord sharding_record(const core::RunRecord& run, const ZeroFlags& flags, const ZeroRow& row,
                                     const ZeroResult& result);

// Main program of zero_bench.

// Runs every row that the flags ask for, prints a table and writes the records. Returns the exit status: 0, or that of
// core::Failure if a row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_zero_bench(const ZeroFlags& flags, const program::Print& print);

}  // namespace lockstep::parallel_bench
