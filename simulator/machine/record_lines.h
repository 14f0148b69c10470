// The records (docs/record_format.md) that a machine is calibrated from, read back: kernels, ceilings, and rows of
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
  std::string bound;      // "memory", "compute", "launch" or nothing
  std::string signature;  // as workload::signature_of() has it
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
  double steps = 0;       // of the plan's longest path
  double wire_bytes = 0;  // that the busiest rank sends
  double bytes = 0;       // as the row says
  std::string transport = {};
};

struct RecordLines {
  std::string machine;  // what the first run says of it: "cpu" and GPUs
  std::int64_t memory_bytes = 0;
  int cores = 0;                    // that a program may use
  std::vector<KernelLine> kernels;  // those that ran and were right
  std::vector<CeilingLine> ceilings;
  std::vector<RowLine> rows;       // those measured, right, and with counts
  std::vector<RowLine> nccl_rows;  // likewise, of NCCL's own collectives: without counts
};

// `where` names the text in what is thrown: a usage Error with the line that is no record.
RecordLines read_record_lines(std::string_view text, const std::string& where);

}  // namespace lockstep::simulator
