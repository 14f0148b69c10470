#include "bench/parallel/step_flags.h"

#include <array>
#include <chrono>

#include "bench/trainer/flag_readers.h"

namespace lockstep::parallel_bench {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<StepFlags>;

constexpr const char* kModel = "Model";
constexpr const char* kRun = "Ranks and times";

const std::array kFlagsOfModel{
    Flag{"--model", "micro", "a size by name (mini_train --list)",
         [](StepFlags& f, const FlagValue& v) { f.model = v.text; }},
    Flag{"--layers", "", "layers, in place of the named size's",
         [](StepFlags& f, const FlagValue& v) { mini_train::change_model(f.model, "layers", v.integer(1, 10000)); }},
    Flag{"--hidden", "", "hidden size",
         [](StepFlags& f, const FlagValue& v) { mini_train::change_model(f.model, "hidden", v.integer(1, 1 << 20)); }},
    Flag{"--heads", "", "attention heads",
         [](StepFlags& f, const FlagValue& v) { mini_train::change_model(f.model, "heads", v.integer(1, 4096)); }},
    Flag{"--vocabulary", "", "vocabulary size; at least 256, as tokens are bytes",
         [](StepFlags& f, const FlagValue& v) {
           mini_train::change_model(f.model, "vocabulary", v.integer(256, 1 << 24));
         }},
    Flag{"--length", "", "tokens per sequence [the model's positions]",
         [](StepFlags& f, const FlagValue& v) { mini_train::change_length(f.model, v.integer(1, 1 << 20)); }},
    Flag{"--batch", "4", "sequences per microbatch, on each rank",
         [](StepFlags& f, const FlagValue& v) { f.options.layout.microbatch_size = v.integer(1, 1 << 20); }},
    Flag{"--seed", "1", "seed of the initial weights and of the order of the data",
         [](StepFlags& f, const FlagValue& v) { f.options.seed = static_cast<std::uint64_t>(v.integer(0, 1 << 30)); }},
};

const std::array kFlagsOfRun{
    Flag{"--dp", "2", "data-parallel ranks, a list",
         [](StepFlags& f, const FlagValue& v) { f.replicas = program::integer_list(v, 1, kMostReplicas); }},
    Flag{"--microbatches", "1", "microbatches per step, on each rank; their gradients are accumulated",
         [](StepFlags& f, const FlagValue& v) { f.options.layout.microbatches = program::integer(v, 1, 65536); }},
    Flag{"--algo", "auto", "algorithm of the collectives (docs/adding_an_algorithm.md)",
         [](StepFlags& f, const FlagValue& v) { f.options.algorithm = v.text; }},
    Flag{"-t,--threads", "1", "kernel threads per rank",
         [](StepFlags& f, const FlagValue& v) { f.options.threads = program::integer(v, 1, 1024); }},
    Flag{"--steps", "10", "maximum number of steps to time for each way that is compared",
         [](StepFlags& f, const FlagValue& v) { f.turns = v.integer(1, 1 << 20); }},
    Flag{"--warmup", "3", "steps before the timed ones",
         [](StepFlags& f, const FlagValue& v) { f.warm_turns = v.integer(1, 1 << 20); }},
    Flag{"--time-budget", "30", "seconds per row, after which no further step starts; 0: no limit",
         [](StepFlags& f, const FlagValue& v) { f.budget_s = v.number_from(0, 1e6); }},
    Flag{"-T,--timeout", "60", "seconds after which a wait fails",
         [](StepFlags& f, const FlagValue& v) { f.options.timeout = std::chrono::seconds(v.integer(1, 86400)); }},
    program::json_flag<StepFlags>(),
};

}  // namespace

void begin_step_flags(int argc, const char* const* argv, StepFlags& flags) {
  flags.set_command(argc, argv);
  flags.options.layout.microbatch_size = 4;
}

void declare_step_flags(program::CommandLine& line, StepFlags& flags) {
  declare_all(line, kFlagsOfModel, kModel);
  declare_all(line, kFlagsOfRun, kRun);
  declare_place(line, kRun);
  line.add_switch("--serve", flags.serve,
                  "worker mode for ci/gate.py: run the steps requested on standard input (bench/serve/orders.h)", kRun);
}

void read_step_flags(const program::CommandLine& line, StepFlags& flags) {
  read_all(line, kFlagsOfModel, flags);
  flags.options.model = mini_train::model_of({"--model", flags.model});
  read_all(line, kFlagsOfRun, flags);
  flags.all_ranks = !line.value("--dp");
  flags.place = program::read_place(line);
  flags.options.device = flags.place.device;
  if (flags.serve && flags.place.mpi) {
    throw core::usage_error("--serve works only with --transport local, not with mpi");
  }
}

void place_in(transports::MpiWorld* mpi, StepFlags& flags) {
  flags.options.mpi = mpi;
  if (mpi != nullptr && flags.all_ranks) flags.replicas = {mpi->placement().num_ranks};
}

}  // namespace lockstep::parallel_bench
