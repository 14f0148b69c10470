// A machine's description from records of this machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// Reads the records (docs/record_format.md) from which a machine is calibrated: kernels, ceilings, and rows of
// collectives with the counts of their plans.

struct KernelLine {
  std::string kernel;
  std::string dtype;
  std::string device;     // "cpu", "cuda"
  std::string cache;      // "warm", "cold"
  std::string bound;      // "memory", "compute", "launch" or empty
  std::string signature;  // workload::signature_of()
  int threads = 1;
  int copies = 1;
  double flops = 0;
  double bytes = 0;
  double median_us = 0;
};

struct CeilingLine {
  std::string name;
  std::string level;
  std::string dtype;
  std::string device;
  int threads = 1;
  double value = 0;
};

struct RowLine {
  std::string collective;
  std::string algorithm;
  int ranks = 1;
  double time_us = 0;
  double steps = 0;       // steps on the plan's longest path
  double wire_bytes = 0;  // bytes that the busiest rank sends
  double bytes = 0;       // payload
  std::string transport = {};
};

struct RecordLines {
  std::string machine;  // CPU and GPUs as named by the first run
  std::int64_t memory_bytes = 0;
  int cores = 0;                    // cores that a program may use
  std::vector<KernelLine> kernels;  // kernels that ran with correct results
  std::vector<CeilingLine> ceilings;
  std::vector<RowLine> rows;       // measured rows with correct results and counts
  std::vector<RowLine> nccl_rows;  // measured, correct rows of NCCL's own collectives, which have no counts
};

// Throws a usage Error with `where` and the number of a line that is not a record.
RecordLines read_record_lines(std::string_view text, const std::string& where);

// Describes the machine on which the benchmarks ran, from their records: ceilings become peaks, kernels become shares
// of the peaks, rows of collectives become latency and bandwidth.

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
