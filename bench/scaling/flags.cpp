#include "bench/scaling/flags.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "bench/trainer/flags.h"
#include "core/error.h"
#include "trainer/train/train.h"

namespace lockstep::scaling {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<ScalingFlags>;

constexpr const char* kModel = "Model and ranks, as mini_train has them";
constexpr const char* kWhat = "What is timed";

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

std::vector<Mode> modes_of(const FlagValue& v) {
  if (v.text == "weak") return {Mode::weak};
  if (v.text == "strong") return {Mode::strong};
  if (v.text == "both") return {Mode::weak, Mode::strong};
  throw v.refused("not a way to scale", "weak strong both");
}

// Mini_train's parser reads and refuses their values.
struct PassedOn {
  const char* names;
  const char* default_text;
  const char* meaning;
  const char* word;  // of mini_train
};
constexpr std::array kPassedOn{
    PassedOn{"--model", "nano", "a size by name; mini_train --list shows them", "--model"},
    PassedOn{"--layers", "", "layers, in place of the named size's", "--layers"},
    PassedOn{"--hidden", "", "hidden size", "--hidden"},
    PassedOn{"--heads", "", "attention heads", "--heads"},
    PassedOn{"--length", "", "tokens a sequence [the model's positions]", "--length"},
    PassedOn{"--dtype", "f32", "of weights and activations: f32, bf16 or f16", "--dtype"},
    PassedOn{"--data", "", "text files [a synthetic text]", "--data"},
    PassedOn{"--algo", "auto", "algorithm of the collectives", "--algo"},
    PassedOn{"--link", "", "emulated links between ranks: latency_us=L,gbps=B", "--link"},
    PassedOn{"-t,--threads", "1", "of kernels, a rank", "--threads"},
    PassedOn{"-T,--timeout", "60", "seconds after which a wait fails", "--timeout"},
};

const std::array kFlags{
    Flag{"--mode", "weak", "weak: sequences a step grow with the ranks; strong: they stay; or both",
         [](ScalingFlags& f, const FlagValue& v) { f.modes = modes_of(v); }},
    Flag{"--layouts", "", "\"dp=2,zero=1;pp=2,microbatches=4\": mini_train's layout flags [some of each kind]",
         [](ScalingFlags& f, const FlagValue& v) { f.layouts = split(v.text, ';'); }},
    Flag{"--simulate", "", "further layouts, only simulated: from the pieces of the same layout with dp=2",
         [](ScalingFlags& f, const FlagValue& v) { f.simulated = split(v.text, ';'); }},
    Flag{"--batch", "8", "sequences a step, of each rank (weak) or of all (strong)",
         [](ScalingFlags& f, const FlagValue& v) { f.batch = v.integer(1, 1 << 20); }},
    Flag{"--steps", "5", "rounds; each has steps as they train, steps piece by piece, and steps in company",
         [](ScalingFlags& f, const FlagValue& v) { f.effort.rounds = program::integer(v, 1, 1000); }},
    Flag{"--time-budget", "", "seconds for all layouts together; what has begun is ended [no limit]",
         [](ScalingFlags& f, const FlagValue& v) { f.effort.seconds = v.number(0, 1e9); }},
    program::json_flag<ScalingFlags>(),
};

constexpr std::array kLayoutWords{"dp",     "tp",           "pp",        "zero",    "shard_ranks",   "schedule",
                                  "chunks", "microbatches", "recompute", "overlap", "bucket_cap_mb", "algo"};
constexpr const char* kSwitch = "sequence_parallel";

// "dp=2,zero=1" as mini_train's words.
std::vector<std::string> words_of(const std::string& layout) {
  std::vector<std::string> words;
  for (const std::string& part : split(layout, ',')) {
    const std::string name = part.substr(0, part.find('='));
    const std::string value = part.size() > name.size() ? part.substr(name.size() + 1) : "";
    std::string flag = "--" + name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (name == kSwitch && (value == "1" || value == "0")) {
      if (value == "1") words.push_back(flag);
      continue;
    }
    const bool known = std::find(kLayoutWords.begin(), kLayoutWords.end(), name) != kLayoutWords.end();
    if (!known || value.empty()) {
      std::string allowed;
      for (const char* word : kLayoutWords) allowed.append(word).append("=.. ");
      throw core::usage_error("'" + part +
                              "' is no part of a layout; allowed: " + allowed.append(kSwitch).append("=0|1"));
    }
    words.insert(words.end(), {flag, value});
  }
  return words;
}

mini_train::TrainFlags train_flags_of(const ScalingFlags& flags, const std::string& layout) {
  std::vector<std::string> words{flags.program};
  words.insert(words.end(), flags.train_words.begin(), flags.train_words.end());
  const std::vector<std::string> more = words_of(layout);
  words.insert(words.end(), more.begin(), more.end());
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return mini_train::parse_train_flags(static_cast<int>(argv.size()), argv.data());
}

std::int64_t batch_of(const ScalingFlags& flags, const workload::Layout& layout, Mode mode) {
  const std::int64_t sequences = flags.batch * (mode == Mode::weak ? layout.ranks() : 1);
  const std::int64_t parts = std::int64_t{layout.dp} * layout.microbatches;
  if (sequences % parts != 0) {
    throw core::usage_error(std::to_string(sequences) + " sequences a step (--batch " + std::to_string(flags.batch) +
                            ", " + name_of(mode) + ") over " + std::to_string(parts) +
                            " data-parallel ranks times microbatches; allowed: a multiple of these");
  }
  return sequences / parts;
}

}  // namespace

ScalingFlags parse_scaling_flags(int argc, const char* const* argv) {
  ScalingFlags flags;
  flags.set_command(argc, argv);
  program::CommandLine line(flags.program +
                            ": a training step of each layout, three times: from its pieces alone, from pieces in each "
                            "other's company, and measured.");
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
        "--transport mpi: layouts of different numbers of ranks take turns, and mpirun has started one number of them; "
        "allowed: local nccl, or mini_train --transport mpi for one layout");
  }
  train_flags_of(flags, "");  // so that they are refused as themselves, not as a layout's
  if (flags.layouts.empty()) flags.layouts = default_layouts();
  return flags;
}

std::vector<std::string> default_layouts() {
  return {"dp=1",
          "dp=2",
          "dp=2,zero=1",
          "dp=2,zero=3",
          "tp=2",
          "tp=2,sequence_parallel=1",
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
                            "; allowed: 0, as two data-parallel ranks have no replicas of shards to measure");
  }
  many.layout.dp = 2;
  return many;
}

trainer::TrainOptions options_of(const ScalingFlags& flags, const std::string& layout, Mode mode) {
  try {
    trainer::TrainOptions options = train_flags_of(flags, layout).options;
    options.layout.microbatch_size = batch_of(flags, options.layout, mode);
    options.device = flags.place.device;
    return trainer::checked(std::move(options));
  } catch (const core::Error& error) {
    throw core::usage_error("--layouts " + layout + ": " + error.what());
  }
}

}  // namespace lockstep::scaling
