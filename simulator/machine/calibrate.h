// Describes the machine on which the benchmarks ran, from their records: ceilings become peaks, kernels become shares
// of the peaks, rows of collectives become latency and bandwidth.
#pragma once

#include <span>
#include <string>

#include "simulator/machine/machine.h"
#include "simulator/machine/record_lines.h"

namespace lockstep::simulator {

// Describes the GPU if there are records of device "cuda", else the CPU as the device of one rank: with the smallest
// number of threads for which kernels were timed from cold caches or, without such records, the largest number of
// threads of the ceilings. Needs the ceilings "gemm", "fma", "launch" and those of memory (kernels_bench --json), and
// rows of ring or sendrecv at several sizes (all_reduce_perf --algo ring --json). Throws a usage Error that names
// missing ones. `where` names the records in errors.
Machine calibrate(const RecordLines& records, const std::string& where);

// The records of several files together; `where` names the files.
struct RecordFiles {
  RecordLines records;
  std::string where;
};
RecordFiles read_record_files(std::span<const std::string> paths);

// time_us = steps x latency_us + wire bytes / (1000 gbps), fitted by least squares of relative errors.
struct LinkFit {
  double latency_us = 0;
  double gbps = 0;
  double worst_error = 0;  // largest relative error of a row
};
LinkFit fit_link(std::span<const RowLine> rows);

}  // namespace lockstep::simulator
