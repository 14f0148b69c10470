// Reads the records (docs/record_format.md) from which a machine is calibrated: kernels, ceilings, and rows of
// collectives with the counts of their plans.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::simulator {

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

}  // namespace lockstep::simulator
