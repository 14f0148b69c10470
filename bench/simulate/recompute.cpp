// simulate recompute: memory and time of a step with no, selective and full recomputation, and with inputs kept every k
// layers.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bench/simulate/commands.h"
#include "bench/simulate/study.h"
#include "core/error.h"

namespace lockstep::simulate {
namespace {

using workload::Layout;
using workload::Recompute;

struct RecomputeFlags : StudyFlags {
  RecomputeFlags() {
    model = "megatron-22b";
    layout = "tp=8,microbatch=4,batch=16,sp=yes,flash=no";
  }
};

constexpr std::array<program::FlagOf<RecomputeFlags>, 0> kRecomputeFlags{};

struct Choice {
  std::string name;
  Layout layout;
  simulator::Prediction made = {};
  bool best = false;
};

// All kinds of recomputation in place of the layout's own; inputs are kept every k layers, for each k that divides a
// stage's layers.
std::vector<Choice> choices_of(const workload::Model& model, const Layout& base) {
  std::vector<Choice> choices;
  Layout layout = base;
  layout.recompute_every = 1;
  for (const auto& [name, kind] :
       {std::pair{"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}}) {
    layout.recompute = kind;
    choices.push_back({name, layout});
  }
  const std::int64_t layers = model.layers / stages_per_pipe(base);
  for (std::int32_t k = 2; k <= layers; ++k) {
    if (layers % k != 0) continue;
    layout.recompute_every = k;
    choices.push_back({fmt::format("full, {} layers at a time", k), layout});
  }
  return choices;
}

double memory_gb(const Choice& one) {
  return one.made.memory[one.made.fullest].total() / 1e9;
}

// The Pareto front: choices that no other beats in both memory and time.
void mark_best(std::vector<Choice>& choices) {
  for (Choice& one : choices) {
    one.best = std::none_of(choices.begin(), choices.end(), [&](const Choice& other) {
      const double more = other.made.step_s - one.made.step_s;
      const double larger = memory_gb(other) - memory_gb(one);
      return more <= 0 && larger <= 0 && (more < 0 || larger < 0);
    });
  }
}

std::string finding_text(const std::vector<Choice>& choices, const simulator::Machine& machine) {
  const double capacity_gb = static_cast<double>(machine.device.memory_bytes) / 1e9;
  const Choice* fastest = nullptr;
  const Choice* least = nullptr;
  for (const Choice& one : choices) {
    if (least == nullptr || memory_gb(one) < memory_gb(*least)) least = &one;
    if (one.made.fits && (fastest == nullptr || one.made.step_s < fastest->made.step_s)) fastest = &one;
  }
  if (fastest == nullptr) {
    return fmt::format("# nothing fits into {:.1f} GB; {} needs the least, {:.1f} GB\n", capacity_gb, least->name,
                       memory_gb(*least));
  }
  const double against = 100 * (fastest->made.step_s / choices.front().made.step_s - 1);
  return fmt::format("# fastest that fits into {:.1f} GB: {}, {:+.1f} % time and {:+.1f} GB against none\n",
                     capacity_gb, fastest->name, against, memory_gb(*fastest) - memory_gb(choices.front()));
}

}  // namespace

int run_recompute(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<RecomputeFlags>(
      argc, argv, "memory and time of a step with each kind of recomputation.", kRecomputeFlags);
  const workload::Model model = workload::parse_model(flags.model);
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  const Layout base = workload::parse_layout(flags.layout);
  Study study(flags, "recompute");
  std::vector<Choice> choices = choices_of(model, base);
  for (Choice& one : choices) one.made = predict(model, one.layout, machine);
  mark_best(choices);
  const std::string setting = setting_of(model, machine) + ", " + text_of(base);
  print(fmt::format(
      "# simulated: {}\n#{:>9} {:>9} {:>9} {:>11} {:>11} {:>7}  recomputation (* no other needs less memory and "
      "less time)\n#{:>9} {:>9} {:>9} {:>11} {:>11}\n",
      setting, "step", "against", "memory", "activations", "recompute", "fits", "(ms)", "none (%)", "(GB)", "(GB)",
      "(ms)"));
  for (const Choice& one : choices) {
    const workload::MemoryBytes& memory = one.made.memory[one.made.fullest];
    const double recompute_ms = static_cast<double>(one.made.parts[one.made.busiest].recompute_ps) / 1e9;
    print(fmt::format(" {:>9.2f} {:>+9.2f} {:>9.2f} {:>11.2f} {:>11.2f} {:>7} {} {}\n", one.made.step_s * 1e3,
                      100 * (one.made.step_s / choices.front().made.step_s - 1), memory.total() / 1e9,
                      memory.activations / 1e9, recompute_ms, one.made.fits ? "yes" : "no", one.best ? "*" : " ",
                      one.name));
    core::StudyRecord point = study.point(setting, one.name, one.layout, one.made);
    point.at = {{"every", one.layout.recompute == Recompute::full ? one.layout.recompute_every : 0}};
    point.values.emplace_back("activations_gb", memory.activations / 1e9);
    point.values.emplace_back("capacity_gb", static_cast<double>(machine.device.memory_bytes) / 1e9);
    point.best = one.best;
    study.write(point);
  }
  print(finding_text(choices, machine));
  study.commit();
  return 0;
}

}  // namespace lockstep::simulate
