// The command line of overlap_perf.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/pipeline/flags.h"
#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "collectives/transports/paced_link.h"

namespace lockstep::pipeline {

// ZeRO stages: the replicas shard 0 nothing, 1 the optimizer states, 2 also gradients, 3 also parameters.
struct OverlapFlags : program::Invocation {
  Mode mode = Mode::simulated;

  // Swept lists, in this order of nesting.
  std::vector<int> replicas{4};
  std::vector<int> zero_stages{0};
  std::vector<double> bucket_caps_mb{25};  // MiB

  int layers = 12;
  int tensors_a_layer = 4;
  int microbatches = 1;
  double forward_ms = 1;  // per layer
  double backward_ms = 2;
  double optimizer_ms = 0;                              // per rank
  std::int64_t bytes_a_layer = std::int64_t{28} << 20;  // gradients per layer, and equally many of parameters
  int prefetch = 1;                                     // layers gathered ahead of their use
  std::string algorithm = "ring";
  transports::LinkSpec link{.latency_us = 20, .gbps = 12.5};

  int repeat = 5;
  int timeout_s = 60;
  std::string trace_file;
};

OverlapFlags parse_overlap_flags(int argc, const char* const* argv);

}  // namespace lockstep::pipeline
