// A description of the machine that our own benchmarks ran on, from their records: ceilings become peaks, kernels
// become shares of them, rows of a collective become latency and bandwidth.
#pragma once

#include <span>
#include <string>

#include "simulator/machine/machine.h"
#include "simulator/machine/record_lines.h"

namespace lockstep::simulator {

// Describes the GPU if there are records of "cuda", else the CPU: as one rank's, with the fewest threads that kernels
// were timed with from cold caches, or without such records with the most threads that ceilings have. Needs ceilings
// "gemm", "fma", "launch" and those of memory (kernels_bench --json), and rows of ring or sendrecv at several sizes
// (all_reduce_perf --algo ring --json). Throws a usage Error that says which are missing. `where` names the records.
Machine calibrate(const RecordLines& records, const std::string& where);

// Several files as one; `where` names them.
struct RecordFiles {
  RecordLines records;
  std::string where;
};
RecordFiles read_record_files(std::span<const std::string> paths);

// time_us = latency_us a step + wire bytes / gbps, with least squares of relative errors.
struct LinkFit {
  double latency_us = 0;
  double gbps = 0;
  double worst_error = 0;  // of a row, relative
};
LinkFit fit_link(std::span<const RowLine> rows);

}  // namespace lockstep::simulator
