// The command line of mini_train, readers of flags that other programs share, and measurements that mini_train makes
// before it starts.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/program/place.h"
#include "bench/program/program.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"
#include "core/record.h"
#include "kernels/gemm/gemm_choice.h"
#include "trainer/data/corpus.h"
#include "trainer/train/options.h"
#include "workload/compression.h"
#include "workload/context_list.h"
#include "workload/model.h"

namespace lockstep::mini_train {

// Decides which implementation computes a training run's matrix products: once, before the ranks start, the same for
// all.

inline constexpr const char* kProbeGemms = "probe";  // the default of --gemm

// The facts on which the decision depends.
struct GemmQuestion {
  std::string flag;               // --gemm
  core::DType dtype;              // dtype of the run
  std::string checkpoint;         // implementation of the run that wrote the checkpoint; empty: unknown
  std::vector<std::string> here;  // implementations for this dtype that all ranks have, in the fixed order
  std::function<std::vector<kernels::GemmTime>()> probe;  // times these; called at most once
};

// Returns the implementation that the flag names, otherwise the checkpoint's, otherwise the fastest in the probe.
// Throws a usage Error if the flag names one that is not available.
core::GemmRecord decide_gemm(const GemmQuestion& question);

// The decision for a run on the CPU. `threads`: number of this process's kernel threads that have a core each. Under
// mpirun all ranks call it: an implementation counts as fast as on its slowest rank.
core::GemmRecord decide_gemm(const std::string& flag, const trainer::TrainOptions& options, int threads);

// One line of the heading.
std::string gemm_text(const core::GemmRecord& gemm);

// The peak FLOP/s of these cores: the denominator of MFU.

// FLOP/s of products of square matrices with 128 to 1024 rows on `threads` threads: the best of all runs. Small
// products fit into quiet moments of a shared machine; large ones have less overhead.
double measured_peak_flops(core::DType dtype, int threads);

// The same for products with 2048 to 8192 rows on a CUDA device. Operands are zeros, with which a GPU draws the least
// power and keeps its highest clock.
double measured_cuda_peak_flops(core::DType dtype, int device);

// A repeatable piece of work whose peak rate is measured.
struct TimedWork {
  double flops = 0;
  std::function<double()> run_s;  // runs it once and returns seconds
};

// Returns the highest rate of any run. Each work runs at least `runs` times, and for its share of the span.
double best_flops_a_s(std::span<const TimedWork> works, int runs, std::chrono::nanoseconds span);

// Readers of flags that are shared by the programs that train.

workload::ContextWay context_way_of(const program::FlagValue& value);
workload::Model model_of(const program::FlagValue& value);
transports::LinkSpec link_of(const program::FlagValue& value);

// A flag that sets a field of the layout (simulate --list), as an entry of a table.
struct LayoutFlag {
  const char* names;
  const char* default_text;
  const char* meaning;
  const char* field;
  std::int64_t most = 0;  // largest number; 0: the field's own

  void read(workload::Layout& layout, const program::FlagValue& value) const;
};

// The same for a number of the model, in its text: --layers 2 turns "nano" into "nano,layers=2".
struct ModelFlag {
  const char* names;
  const char* default_text;
  const char* meaning;
  const char* field;
  std::int64_t least = 0;
  std::int64_t most = 0;
  bool up_to_positions = false;  // and at most the model's positions

  void read(std::string& model, const program::FlagValue& value) const;
};
inline constexpr std::array kSizeFlags{
    ModelFlag{"--layers", "", "layers, instead of the named size's", "layers", 1, 10000},
    ModelFlag{"--hidden", "", "hidden size", "hidden", 1, 1 << 20},
    ModelFlag{"--heads", "", "attention heads", "heads", 1, 4096},
};
inline constexpr std::array kTextFlags{
    ModelFlag{"--vocabulary", "", "vocabulary size; at least the tokenizer's, 256 for bytes", "vocabulary", 256,
              1 << 24},
    ModelFlag{"--length", "", "tokens per sequence [the model's]", "sequence", 1, 1 << 20, true},
};

// The sequences of an optimizer step, as flags state them; 0: not given.
struct SequenceFlags {
  std::int64_t batch = 0;            // --batch: of the step, over all data-parallel ranks
  std::int64_t microbatch_size = 0;  // --microbatch-size
  std::int32_t microbatches = 0;     // --microbatches, per data-parallel rank
};
// Sets the layout's microbatches. If several data-parallel ranks or microbatches share a --batch,
// --microbatch-size has to state how it is cut, so that the two are never confused. Throws a usage Error.
void set_sequences(const SequenceFlags& given, workload::Layout& layout);
// Their rows in a table of flags, for `Flags` with `sequences`.
template <class Flags>
constexpr std::array<program::FlagOf<Flags>, 3> sequence_flags(const char* size, const char* number) {
  return {
      {{"--microbatch-size", size, "sequences per microbatch, on each data-parallel rank",
        [](Flags& f, const program::FlagValue& v) { f.sequences.microbatch_size = v.integer(1, 1 << 20); }},
       {"--microbatches", number, "microbatches per step, on each data-parallel rank; their gradients are accumulated",
        [](Flags& f, const program::FlagValue& v) { f.sequences.microbatches = v.int32(1, 65536); }},
       {"--batch", "",
        "sequences per optimizer step, over all data-parallel ranks; together with --microbatch-size, from which the "
        "number of microbatches follows [data-parallel ranks x microbatches x --microbatch-size]",
        [](Flags& f, const program::FlagValue& v) { f.sequences.batch = v.integer(1, 1 << 30); }}}};
}

// The command line of mini_train.

struct TrainFlags : program::Invocation {
  std::string model = "nano";  // --model; other flags override its fields; options.model is the result
  trainer::TrainOptions options;
  SequenceFlags sequences;
  program::PlaceFlags place;
  std::string gemm = kProbeGemms;  // --gemm; options.gemm is the decision
  double peak_gflops = 0;          // over all ranks' cores together, for MFU; 0: measured at the start
  std::string predict;             // machine whose prediction is printed with the run; empty: none
  std::int64_t report_every = 1;
  std::string trace_file;       // empty: none
  std::int64_t trace_step = 0;  // 0: the last step
  std::string tokens_file;      // --tokenize: write this file instead of training; empty: train
  bool serve = false;           // be a worker (bench/serve/orders.h) instead of training
  bool list = false;            // list the models instead of training
};

// The text that these options train on: files, or a synthetic one.
trainer::Corpus corpus_of(const trainer::TrainOptions& options);

// Throws a usage Error: one line that names the flag, its value and what is allowed.
TrainFlags parse_train_flags(int argc, const char* const* argv);

}  // namespace lockstep::mini_train
