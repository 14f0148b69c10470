// The program seqpar_bench: table, records, exit status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/context/flags.h"
#include "bench/context/run.h"
#include "bench/program/program.h"
#include "core/record.h"

namespace lockstep::context_bench {

// The longest sequence whose training step fits into a rank's memory, by the step model.

struct Longest {
  workload::ContextWay way = workload::ContextWay::ring;
  int ranks = 1;
  std::int64_t tokens = 0;  // a multiple of the number of chunks; 0: no sequence fits
};
// For --fit: for one rank, and for each way on each number of ranks.
std::vector<Longest> longest_sequences(const ContextFlags& flags);
std::string longest_text(const ContextFlags& flags, const std::vector<Longest>& all);

// The text that seqpar_bench prints.

std::string heading_text(const ContextFlags& flags);
std::string row_text(const ContextFlags& flags, const parallel::ContextLayer& layer, const Result& result);
std::string ending_text(std::size_t rows, std::size_t wrong);

// Results of seqpar_bench as records (docs/record_format.md).

core::RunRecord run_record(const ContextFlags& flags);
core::ContextRecord context_record(const core::RunRecord& run, const ContextFlags& flags,
                                   const parallel::ContextLayer& layer, const Result& result);

// Main program of seqpar_bench.

// Runs every case that the flags ask for and prints a table. Returns the exit status: 0, or that of core::Failure if a
// row is wrong. Throws core::Error. Under mpirun all ranks call it; rank 0 prints and writes.
int run_context(const ContextFlags& flags, const program::Print& print);

}  // namespace lockstep::context_bench
