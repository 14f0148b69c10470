// The command line of mini_train, and readers of flags that other programs share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/place/place.h"
#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "bench/trainer/probes.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"
#include "trainer/train/options.h"
#include "workload/compression.h"
#include "workload/context_list.h"
#include "workload/model.h"

namespace lockstep::mini_train {

// Readers of flags that are shared by the programs that train.

workload::ContextWay context_way_of(const program::FlagValue& value);
core::DType dtype_of(const program::FlagValue& value);  // f32, bf16, f16
workload::Model model_of(const program::FlagValue& value);
// Changes a field of a model's text: --layers 2 turns "nano" into "nano,layers=2".
void change_model(std::string& model, const char* field, std::int64_t value);
// Applies --length: tokens per sequence, at most the model's positions. Throws a usage Error.
void change_length(std::string& model, std::int64_t length);
transports::LinkSpec link_of(const program::FlagValue& value);
workload::Compression compression_of(const program::FlagValue& value);

// The command line of mini_train.

struct TrainFlags : program::Invocation {
  std::string model = "nano";  // --model; other flags change parts of it; options.model is the result
  trainer::TrainOptions options;
  program::PlaceFlags place;
  std::string gemm = kProbeGemms;  // --gemm; options.gemm is the decision (probes.h)
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
