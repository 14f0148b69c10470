// The command line of mini_train.
#pragma once

#include <string>
#include <vector>

#include "bench/place/place.h"
#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "bench/trainer/gemm_decision.h"
#include "trainer/train/options.h"

namespace lockstep::mini_train {

struct TrainFlags : program::Invocation {
  std::string model = "nano";  // --model; other flags change parts of it; options.model is the result
  trainer::TrainOptions options;
  program::PlaceFlags place;
  std::string gemm = kProbeGemms;  // --gemm; options.gemm is the decision (gemm_decision.h)
  double peak_gflops = 0;          // all ranks' cores together, for MFU; 0: measured at the start
  std::string predict;             // machine whose prediction is printed beside the run; empty: none
  std::int64_t report_every = 1;
  std::string trace_file;       // empty: none
  std::int64_t trace_step = 0;  // 0: the last step
  std::string tokens_file;      // --tokenize: write this file instead of training; empty: train
  bool serve = false;           // be a worker (bench/serve/orders.h) instead of training
  bool list = false;            // list the models instead of training
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
TrainFlags parse_train_flags(int argc, const char* const* argv);

}  // namespace lockstep::mini_train
