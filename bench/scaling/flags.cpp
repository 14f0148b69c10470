#include "bench/scaling/scaling.h"

#include <algorithm>
#include <array>
#include <utility>

#include "bench/mini_train/flags.h"
#include "core/options.h"
#include "simulator/machine/machine.h"
#include "trainer/train/train.h"

namespace lockstep::scaling {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<ScalingFlags>;

constexpr const char* kModel = "Model and ranks, as in mini_train";
constexpr const char* kWhat = "What is timed";

std::vector<Mode> modes_of(const FlagValue& v) {
  if (v.text == "weak,strong") return {Mode::weak, Mode::strong};
  constexpr std::array kNames{"weak", "strong", "both"};
  return std::array<std::vector<Mode>, 3>{{{Mode::weak}, {Mode::strong}, {Mode::weak, Mode::strong}}}.at(
      v.index_of(kNames));
}

// Flags whose values mini_train's parser reads and checks.
struct PassedOn {
  const char* names;
  const char* default_text;
  const char* meaning;
  const char* word;  // the flag of mini_train
};
constexpr std::array kPassedOn{
    PassedOn{"--model", "nano", "a size by name; mini_train --list shows them", "--model"},
    PassedOn{"--layers", "", "layers, instead of the named size's", "--layers"},
    PassedOn{"--hidden", "", "hidden size", "--hidden"},
    PassedOn{"--heads", "", "attention heads", "--heads"},
    PassedOn{"--length", "", "tokens per sequence [the model's positions]", "--length"},
    PassedOn{"--dtype", "f32", "dtype of weights and activations: f32, bf16 or f16", "--dtype"},
    PassedOn{"--data", "", "text files [a synthetic text]", "--data"},
    PassedOn{"--algo", "auto", "algorithm of the collectives", "--algo"},
    PassedOn{"--link", "", "emulated links between ranks: latency_us=L,gbps=B", "--link"},
    PassedOn{"-t,--threads", "1", "kernel threads per rank", "--threads"},
    PassedOn{"-T,--timeout", "60", "seconds after which a wait fails", "--timeout"},
};

const std::array kFlags{
    Flag{"--mode", "weak", "weak: sequences per step grow with the ranks; strong: they are constant; or both",
         [](ScalingFlags& f, const FlagValue& v) { f.modes = modes_of(v); }},
    Flag{"--layouts", "",
         "\"dp=2,zero=1;pp=2,microbatches=4\": layouts as simulate --layout takes them (simulate --list) [some of each "
         "kind]",
         [](ScalingFlags& f, const FlagValue& v) { f.layouts = program::text_list(v, ';'); }},
    Flag{"--ranks", "",
         "\"1,2,4\": the scaling curve of each of --layouts [dp=1] over these numbers of ranks: tokens per second, "
         "efficiency, and what reduces it",
         [](ScalingFlags& f, const FlagValue& v) { f.ranks = program::integer_list(v, 1, 1 << 20); }},
    Flag{"--simulate-to", "", "with --ranks: also simulate these numbers of ranks, and powers of two up to this one",
         [](ScalingFlags& f, const FlagValue& v) { f.simulate_to = program::integer(v, 2, 1 << 20); }},
    Flag{"--machine", "",
         "machine of simulated layouts: a name, or a file from simulate --calibrate [pieces timed on this machine]",
         [](ScalingFlags& f, const FlagValue& v) { f.machine = v.checked_by(simulator::load_machine); }},
    Flag{"--rounds", "10",
         "number of rounds; all layouts and one rank train in each, and efficiencies are medians over rounds",
         [](ScalingFlags& f, const FlagValue& v) { f.rounds = program::integer(v, 1, 10000); }},
    Flag{"--simulate", "", "more layouts, which are only simulated, from times of the same layout's pieces with dp=2",
         [](ScalingFlags& f, const FlagValue& v) { f.simulated = program::text_list(v, ';'); }},
    Flag{"--batch", "8",
         "sequences per optimizer step of one rank; with more ranks this many in total (strong) or per rank (weak)",
         [](ScalingFlags& f, const FlagValue& v) { f.batch = v.integer(1, 1 << 20); }},
    Flag{"--steps", "5",
         "number of rounds; each times a training step, its pieces alone on one rank, and its pieces while all ranks "
         "run them",
         [](ScalingFlags& f, const FlagValue& v) { f.effort.rounds = program::integer(v, 1, 1000); }},
    Flag{"--time-budget", "", "seconds for all layouts together; a layout that has started is finished [no limit]",
         [](ScalingFlags& f, const FlagValue& v) { f.effort.seconds = v.number(0, 1e9); }},
    program::json_flag<ScalingFlags>(),
};

mini_train::TrainFlags train_flags_of(const ScalingFlags& flags) {
  std::vector<const char*> argv{flags.program.c_str()};
  for (const std::string& word : flags.train_words) argv.push_back(word.c_str());
  return mini_train::parse_train_flags(static_cast<int>(argv.size()), argv.data());
}

// The number of sequences per step, and so per microbatch, follows from --batch and the ranks.
workload::Layout layout_of(const workload::Layout& base, const std::string& text) {
  for (const std::string_view part : core::split(text, ',')) {
    const std::string_view name = core::name_and_value(part).name;
    if (name != "batch" && name != "microbatch") continue;
    throw core::usage_error(std::string(part) + ": --batch sets the sequences; allowed: microbatches=.. instead");
  }
  return workload::parse_layout_over(base, text);
}

std::int64_t batch_of(const ScalingFlags& flags, const workload::Layout& layout, Mode mode) {
  const std::int64_t sequences = flags.batch * (mode == Mode::weak ? layout.ranks() : 1);
  const std::int64_t parts = std::int64_t{layout.dp} * layout.microbatches;
  if (sequences % parts != 0) {
    throw core::usage_error(std::to_string(sequences) + " sequences per step (--batch " + std::to_string(flags.batch) +
                            ", " + name_of(mode) + ") over " + std::to_string(parts) +
                            " data-parallel ranks times microbatches; allowed: a multiple of these");
  }
  return sequences / parts;
}

}  // namespace

ScalingFlags parse_scaling_flags(int argc, const char* const* argv) {
  ScalingFlags flags;
  flags.set_command(argc, argv);
  program::CommandLine line(
      flags.program +
      ": the time of a training step of each layout, three times: simulated from its pieces timed alone, simulated "
      "from its pieces timed while other ranks run theirs, and measured.");
  for (const PassedOn& flag : kPassedOn) line.add(flag.names, flag.default_text, flag.meaning, kModel);
  declare_place(line, kModel);
  declare_all(line, kFlags, kWhat);
  line.parse(argc, argv);
  for (const PassedOn& flag : kPassedOn) {
    if (const auto value = line.value(flag.names)) {
      flags.train_words.insert(flags.train_words.end(), {flag.word, value->text});
    }
  }
  read_all(line, kFlags, flags);
  flags.place = program::read_place(line);
  program::check_device(flags.place.device);
  if (flags.place.mpi) {
    throw core::usage_error(
        "ranks of mpirun: layouts have different numbers of ranks, but mpirun starts a fixed number; allowed: "
        "--transport local or nccl without mpirun, or mini_train for one layout");
  }
  const int threads = train_flags_of(flags).options.threads;  // refuses a wrong flag by its own name, not by a layout's
  if (!flags.machine.empty()) {
    const simulator::Measured measured = simulator::load_machine(flags.machine).measured;
    if (measured.cores > 0 && measured.threads != threads) {
      throw core::usage_error("--machine " + flags.machine + " was measured with " + std::to_string(measured.threads) +
                              " thread(s) per rank; allowed: --threads " + std::to_string(measured.threads));
    }
  }
  if (flags.simulate_to > 0 && flags.ranks.empty()) {
    throw core::usage_error("--simulate-to without --ranks; allowed: --ranks 1,2,4");
  }
  if (!flags.machine.empty() && flags.simulate_to == 0 && flags.simulated.empty()) {
    throw core::usage_error("--machine: nothing is simulated; allowed: with --simulate-to or --simulate");
  }
  if (flags.layouts.empty()) flags.layouts = flags.ranks.empty() ? default_layouts() : std::vector<std::string>{"dp=1"};
  return flags;
}

std::string grown_layout(const ScalingFlags& flags, const std::string& layout, int ranks) {
  if (ranks == 1) return "dp=1";
  std::string others;
  for (const std::string_view part : core::split(layout, ',')) {
    if (core::name_and_value(part).name != "dp") others.append(part).append(",");
  }
  const int each = options_of(flags, others + "dp=1", Mode::weak).layout.ranks();
  if (ranks % each == 0) return others + "dp=" + std::to_string(ranks / each);
  throw core::usage_error("--ranks " + std::to_string(ranks) + " of --layouts " + layout + "; allowed: multiples of " +
                          std::to_string(each));
}

std::vector<std::string> default_layouts() {
  return {"dp=1",
          "dp=2",
          "dp=2,zero=1",
          "dp=2,zero=3",
          "tp=2",
          "tp=2,sp=yes",
          "pp=2,microbatches=4",
          "pp=2,microbatches=4,schedule=zb_h1",
          "dp=4",
          "dp=2,pp=2,microbatches=4"};
}

trainer::TrainOptions two_replicas_of(trainer::TrainOptions many) {
  if (many.layout.dp < 2) {
    throw core::usage_error("--simulate: dp is " + std::to_string(many.layout.dp) + "; allowed: dp=2 and more");
  }
  if (many.layout.shard_ranks > 0) {
    throw core::usage_error("--simulate: shard_ranks is " + std::to_string(many.layout.shard_ranks) +
                            "; allowed: 0, because two data-parallel ranks have no replicas of shards to measure");
  }
  many.layout.dp = 2;
  return many;
}

trainer::TrainOptions options_of(const ScalingFlags& flags, const std::string& layout, Mode mode) {
  try {
    trainer::TrainOptions options = train_flags_of(flags).options;
    options.layout = layout_of(options.layout, layout);
    options.layout.microbatch_size = batch_of(flags, options.layout, mode);
    options.device = flags.place.device;
    if (options.layout.slices > 1 || evicts_activations(options.layout)) {
      throw core::usage_error(
          "the schedule " + options.layout.schedule +
          " has slices or evictions, which are not timed alone here; allowed: others, such as 1f1b");
    }
    return trainer::checked(std::move(options));
  } catch (const core::Error& error) {
    const bool is_simulated =
        std::find(flags.simulated.begin(), flags.simulated.end(), layout) != flags.simulated.end();
    const char* const named = is_simulated ? "--simulate " : flags.ranks.empty() ? "--layouts " : "--ranks: ";
    throw core::usage_error(named + layout + ": " + error.what());
  }
}

}  // namespace lockstep::scaling
