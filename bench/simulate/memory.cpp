// simulate memory: memory of each ZeRO stage per rank on N data-parallel ranks, and the largest model whose states fit
// (tables 1 and 2 of the ZeRO paper, arXiv:1910.02054). With offload in --layout some states are in the host's memory
// or in files; these must fit, too, if the machine description has their sizes (ZeRO-Infinity, arXiv:2104.07857, figure
// 2). Also prints the estimates of DeepSpeed.
#include <algorithm>

#include <fmt/format.h>

#include "bench/simulate/simulate.h"
#include "workload/memory.h"

namespace lockstep::simulate {
namespace {

struct MemoryFlags : StudyFlags {
  MemoryFlags() {
    model = "";  // replaced by --parameters
    layout = "grad_dtype=bf16";
  }
  std::vector<double> parameters{7.5e9, 128e9, 1e12};
  double largest_layer = 0;
  std::vector<int> ranks{1, 4, 16, 64, 256, 1024};
};

const std::array kMemoryFlags{
    program::FlagOf<MemoryFlags>{"--parameters", "7.5e9,128e9,1e12", "sizes of models",
                                 [](MemoryFlags& f, const program::FlagValue& v) {
                                   f.parameters.clear();
                                   for (const program::FlagValue& part : v.list()) {
                                     f.parameters.push_back(part.number(0, 1e16));
                                   }
                                 }},
    program::FlagOf<MemoryFlags>{
        "--ranks", "1,4,16,64,256,1024", "data-parallel ranks",
        [](MemoryFlags& f, const program::FlagValue& v) { f.ranks = program::integer_list(v, 1, 10'000'000); }},
    program::FlagOf<MemoryFlags>{
        "--largest-layer", "0",
        "parameters of the largest layer, which DeepSpeed's estimates of stage 3 count four times; 0: no such layer",
        [](MemoryFlags& f, const program::FlagValue& v) { f.largest_layer = v.number_from(0, 1e16); }},
};

std::string stage_name(std::int32_t stage) {
  return stage == 0 ? "replicas" : "ZeRO-" + std::to_string(stage);
}

std::string size_text(double parameters) {
  return parameters >= 1e12 ? fmt::format("{:.4g}T", parameters / 1e12) : fmt::format("{:.4g}B", parameters / 1e9);
}

struct RankMemory {
  workload::Offload place;
  double bytes;  // share of one rank; 0: unknown
};

// Bytes per rank on the device, in the host's memory and in files.
std::vector<RankMemory> memories_of(const simulator::Machine& machine) {
  return {{workload::Offload::none, static_cast<double>(machine.device.memory_bytes)},
          {workload::Offload::host, machine.host_memory_bytes},
          {workload::Offload::file, machine.nvme_bytes}};
}

class Table {
 public:
  Table(const MemoryFlags& flags, const simulator::Machine& machine, Study& study, const program::Print& print)
      : flags_(flags),
        base_(workload::parse_layout(flags.layout)),
        capacity_gb_(static_cast<double>(machine.device.memory_bytes) / 1e9),
        memories_(memories_of(machine)),
        machine_(machine.name),
        study_(study),
        print_(print) {}

  void run(double parameters) {
    print_(fmt::format("# {} parameters, {} weights and {} gradients, {}\n#{:>7}", size_text(parameters),
                       core::short_name_of(base_.compute), core::short_name_of(base_.gradient),
                       kernels::rule_of(base_.optimizer).name, "ranks"));
    for (std::int32_t stage = 0; stage <= 3; ++stage) print_(fmt::format(" {:>11}", stage_name(stage)));
    print_("  (GB per rank; ! does not fit)\n");
    std::array<int, 4> fits_from{};
    for (const int ranks : flags_.ranks) {
      std::string row = fmt::format(" {:>7}", ranks);
      for (std::int32_t stage = 0; stage <= 3; ++stage) {
        const double gigabytes = point(parameters, ranks, stage);
        int& from = fits_from.at(static_cast<std::size_t>(stage));
        const bool is_room = fits(ranks, stage, parameters);
        if (is_room && from == 0) from = ranks;
        row += fmt::format(" {:>10}{}",
                           gigabytes < 10 ? fmt::format("{:.2f}", gigabytes) : fmt::format("{:.1f}", gigabytes),
                           is_room ? " " : "!");
      }
      print_(row + "\n");
    }
    print_("# fits the " + fmt::format("{:.1f} GB of {}{}: ", capacity_gb_, machine_, elsewhere_text()) +
           fits_text(fits_from) + "\n");
  }

  void largest() {
    print_(fmt::format("# largest model whose states fit the {:.1f} GB of {}{}\n#{:>7}", capacity_gb_, machine_,
                       elsewhere_text(), "ranks"));
    for (std::int32_t stage = 0; stage <= 3; ++stage) print_(fmt::format(" {:>11}", stage_name(stage)));
    print_("  (parameters)\n");
    for (const int ranks : flags_.ranks) {
      std::string row = fmt::format(" {:>7}", ranks);
      for (std::int32_t stage = 0; stage <= 3; ++stage) {
        const double most = largest_parameters(ranks, stage);
        row += fmt::format(" {:>11}", most == 0 ? "not known" : size_text(most));
      }
      print_(row + "\n");
    }
  }

  // DeepSpeed's estimators (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py, with gradients in 32 bits since its
  // pull request 5099): bytes per GPU for P parameters on N ranks with a largest layer of L.
  void deepspeed(double parameters) {
    print_(fmt::format(
        "# DeepSpeed's estimates for {} parameters, GB per GPU (-offload: states on the host; -all: weights too)\n"
        "#{:>7} {:>14} {:>14} {:>14} {:>14} {:>14}\n",
        size_text(parameters), "ranks", "ZeRO-2", "ZeRO-2-offload", "ZeRO-3", "ZeRO-3-offload", "ZeRO-3-all"));
    const double layer = 4 * flags_.largest_layer;
    for (const int ranks : flags_.ranks) {
      const double shard = parameters / ranks;
      print_(fmt::format(" {:>7}", ranks));
      for (const double bytes :
           {2 * parameters + 18 * shard, 2 * parameters, layer + 18 * shard, layer + 2 * shard, layer}) {
        print_(fmt::format(" {:>14.2f}", bytes / 1e9));
      }
      print_("\n");
    }
  }

 private:
  std::string elsewhere_text() const {
    std::string text;
    for (const RankMemory& memory : memories_) {
      if (memory.place == workload::Offload::none || !base_.offload.any_in(memory.place)) continue;
      const char* const what = memory.place == workload::Offload::host ? "of its host" : "of files";
      text += memory.bytes == 0 ? fmt::format(", and an unknown size {}", what)
                                : fmt::format(", and {:.1f} GB {}", memory.bytes / 1e9, what);
    }
    return text;
  }
  workload::Layout layout_of(int ranks, std::int32_t stage) const {
    workload::Layout layout = base_;
    layout.dp = ranks;
    layout.zero = stage;
    return layout;
  }
  // Limited by the memory that is full first; 0: no size of the needed memories is known.
  double largest_parameters(int ranks, std::int32_t stage) const {
    double largest = 0;
    for (const RankMemory& memory : memories_) {
      const double bytes = states_in(layout_of(ranks, stage), memory.place, 1, 1.0 / ranks).total();
      if (bytes == 0 || memory.bytes == 0) continue;
      const double here = memory.bytes / bytes;
      largest = largest == 0 ? here : std::min(largest, here);
    }
    return largest;
  }
  bool fits(int ranks, std::int32_t stage, double parameters) const {
    const double largest = largest_parameters(ranks, stage);
    return largest == 0 || parameters <= largest;
  }

  static std::string fits_text(const std::array<int, 4>& fits_from) {
    std::string text;
    for (std::int32_t stage = 0; stage <= 3; ++stage) {
      const int from = fits_from.at(static_cast<std::size_t>(stage));
      text += (stage == 0 ? "" : ", ") + stage_name(stage) +
              (from > 0 ? " from " + std::to_string(from) + " ranks" : std::string(" never"));
    }
    return text;
  }

  double point(double parameters, int ranks, std::int32_t stage) {
    const workload::Layout layout = layout_of(ranks, stage);
    const workload::MemoryBytes bytes = states_of(layout, parameters, parameters / ranks);
    core::StudyRecord point =
        study_.point(fmt::format("{} parameters, {} weights, {} gradients, {}", size_text(parameters),
                                 core::short_name_of(base_.compute), core::short_name_of(base_.gradient),
                                 kernels::rule_of(base_.optimizer).name),
                     stage_name(stage));
    point.basis = "counted";
    point.layout = text_of(layout);
    point.at = {{"ranks", ranks}, {"parameters", parameters}};
    point.values = {{"total_gb", bytes.total() / 1e9},       {"weights_gb", bytes.weights / 1e9},
                    {"gradients_gb", bytes.gradients / 1e9}, {"optimizer_gb", bytes.optimizer / 1e9},
                    {"capacity_gb", capacity_gb_},           {"largest_parameters", largest_parameters(ranks, stage)}};
    for (const auto& [place, name] :
         {std::pair(workload::Offload::host, "host_gb"), {workload::Offload::file, "file_gb"}}) {
      const double there = states_in(layout, place, parameters, parameters / ranks).total();
      if (there > 0) point.values.emplace_back(name, there / 1e9);
    }
    point.fits = fits(ranks, stage, parameters);
    study_.write(point);
    return bytes.total() / 1e9;
  }

  const MemoryFlags& flags_;
  workload::Layout base_;
  double capacity_gb_;
  std::vector<RankMemory> memories_;
  std::string machine_;
  Study& study_;
  const program::Print& print_;
};

}  // namespace

int run_memory(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<MemoryFlags>(
      argc, argv, "weights, gradients and optimizer states per rank, by ZeRO stage and data-parallel ranks.",
      kMemoryFlags);
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  Study study(flags, "memory");
  print("# counted: model states only; activations and buffers are additional (simulate --layout ...)\n");
  Table table(flags, machine, study, print);
  std::vector<double> sizes = flags.parameters;
  if (!flags.model.empty()) sizes = {static_cast<double>(parameters_of(workload::parse_model(flags.model)))};
  for (const double parameters : sizes) {
    table.run(parameters);
    table.deepspeed(parameters);
  }
  table.largest();
  study.commit();
  return 0;
}

// simulate recompute: memory and time of a step with no, selective and full recomputation, and with inputs kept every k
// layers.
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

// All kinds of recomputation instead of the layout's own; inputs are kept every k layers, for each k that divides a
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

double memory_gb(const Choice& choice) {
  return choice.made.memory[choice.made.fullest].total() / 1e9;
}

// The Pareto front: choices that no other beats in both memory and time.
void mark_best(std::vector<Choice>& choices) {
  for (Choice& choice : choices) {
    choice.best = std::none_of(choices.begin(), choices.end(), [&](const Choice& other) {
      const double more = other.made.step_s - choice.made.step_s;
      const double larger = memory_gb(other) - memory_gb(choice);
      return more <= 0 && larger <= 0 && (more < 0 || larger < 0);
    });
  }
}

std::string finding_text(const std::vector<Choice>& choices, const simulator::Machine& machine) {
  const double capacity_gb = static_cast<double>(machine.device.memory_bytes) / 1e9;
  const Choice* fastest = nullptr;
  const Choice* least = nullptr;
  for (const Choice& choice : choices) {
    if (least == nullptr || memory_gb(choice) < memory_gb(*least)) least = &choice;
    if (choice.made.fits && (fastest == nullptr || choice.made.step_s < fastest->made.step_s)) fastest = &choice;
  }
  if (fastest == nullptr) {
    return fmt::format("# nothing fits into {:.1f} GB; {} needs the least, {:.1f} GB\n", capacity_gb, least->name,
                       memory_gb(*least));
  }
  const double against = 100 * (fastest->made.step_s / choices.front().made.step_s - 1);
  return fmt::format("# fastest that fits into {:.1f} GB: {}, {:+.1f} % time and {:+.1f} GB compared with none\n",
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
  for (Choice& choice : choices) choice.made = predict(model, choice.layout, machine);
  mark_best(choices);
  const std::string setting = setting_of(model, machine) + ", " + text_of(base);
  print(fmt::format(
      "# simulated: {}\n#{:>9} {:>9} {:>9} {:>11} {:>11} {:>7}  recomputation (* no other needs less memory and less "
      "time)\n#{:>9} {:>9} {:>9} {:>11} {:>11}\n",
      setting, "step", "against", "memory", "activations", "recompute", "fits", "(ms)", "none (%)", "(GB)", "(GB)",
      "(ms)"));
  for (const Choice& choice : choices) {
    const workload::MemoryBytes& memory = choice.made.memory[choice.made.fullest];
    const double recompute_ms = static_cast<double>(choice.made.parts[choice.made.busiest].recompute_ps) / 1e9;
    print(fmt::format(" {:>9.2f} {:>+9.2f} {:>9.2f} {:>11.2f} {:>11.2f} {:>7} {} {}\n", choice.made.step_s * 1e3,
                      100 * (choice.made.step_s / choices.front().made.step_s - 1), memory.total() / 1e9,
                      memory.activations / 1e9, recompute_ms, choice.made.fits ? "yes" : "no", choice.best ? "*" : " ",
                      choice.name));
    core::StudyRecord point = study.point(setting, choice.name, choice.layout, choice.made);
    point.at = {{"every", choice.layout.recompute == Recompute::full ? choice.layout.recompute_every : 0}};
    point.values.emplace_back("activations_gb", memory.activations / 1e9);
    point.values.emplace_back("capacity_gb", static_cast<double>(machine.device.memory_bytes) / 1e9);
    point.best = choice.best;
    study.write(point);
  }
  print(finding_text(choices, machine));
  study.commit();
  return 0;
}

}  // namespace lockstep::simulate
