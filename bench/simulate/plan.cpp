#include "bench/simulate/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "bench/pipeline/parts.h"
#include "bench/simulate/records.h"
#include "bench/simulate/table.h"
#include "core/cores.h"
#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "simulator/predict/search.h"

namespace lockstep::simulate {
namespace {

using simulator::FoundLayout;
using simulator::SearchResult;
using simulator::SearchSpace;

SearchSpace space_of(const SimulateFlags& flags) {
  SearchSpace space;
  space.gpus = flags.gpus;
  space.global_batch = flags.batch;
  if (!flags.layout.empty()) space.base = workload::parse_layout(flags.layout);
  const program::FlagValue names{"--schedules", flags.schedules};
  for (const program::FlagValue& name : names.list()) {
    space.schedules.emplace_back(schedules::entry_named(name.text).name);
  }
  return space;
}

struct Difference {
  std::string name;
  double ms = 0;
};

// The parts of the step in which two layouts differ most, the largest first.
std::vector<Difference> differences(const FoundLayout& from, const FoundLayout& to) {
  const auto a = pipeline::named_parts(from.prediction.parts[from.prediction.busiest]);
  const auto b = pipeline::named_parts(to.prediction.parts[to.prediction.busiest]);
  std::vector<Difference> all;
  for (std::size_t i = 0; i < a.size(); ++i) {
    all.push_back({a[i].first, static_cast<double>(b[i].second - a[i].second) / 1e9});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Difference& x, const Difference& y) { return std::abs(x.ms) > std::abs(y.ms); });
  return all;
}

std::string change_text(const Difference& difference) {
  return fmt::format("{} {:+.1f} ms", difference.name, difference.ms);
}

// Why a layout is slower than the first: the two parts of the step that differ most.
std::string why_text(const SearchResult& result, std::size_t i) {
  const FoundLayout& first = result.best.front();
  if (i == 0) {
    const auto& made = first.prediction;
    return fmt::format("computes {:.1f} % of its step",
                       100 * static_cast<double>(made.parts[made.busiest].compute_ps()) / (made.step_s * 1e12));
  }
  const FoundLayout& one = result.best[i];
  const auto changes = differences(first, one);
  const double behind = 100 * (one.prediction.step_s / first.prediction.step_s - 1);
  return fmt::format("{:+.1f} %: {}, {}", behind, change_text(changes[0]), change_text(changes[1]));
}

std::string result_text(const SearchResult& result, const SimulateFlags& flags, double wall_s) {
  std::string text = fmt::format(
      "# {} layouts of {} devices, {} sequences per step: {} need too much memory, {} simulated, {} cannot be among "
      "the "
      "best "
      "{} by their bounds; {:.2f} s\n",
      result.legal, flags.gpus, flags.batch, result.too_large, result.simulated, result.beaten, flags.top, wall_s);
  text += columns_text();
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    text += row_text(result.best[i].layout, result.best[i].prediction);
    text += fmt::format("#          {}\n", why_text(result, i));
  }
  return text;
}

void check_found(const SearchResult& result, const SimulateFlags& flags, const simulator::Machine& machine) {
  if (result.legal == 0) {
    throw core::usage_error(
        fmt::format("plan: no layout of {} devices and {} sequences per step is valid for the model; allowed: "
                    "numbers of devices whose factors divide heads, layers and batch",
                    flags.gpus, flags.batch));
  }
  if (result.best.empty()) {
    const bool shares = machine.measured.cores > 0;
    throw core::usage_error(
        fmt::format("plan: the smallest of {} layouts needs {:.1f} GB {}, {} has {:.1f}; allowed: {}", result.legal,
                    result.least_memory_bytes / 1e9, shares ? "for all ranks together" : "per device", machine.name,
                    static_cast<double>(machine.device.memory_bytes) / 1e9,
                    shares ? "a smaller model, or fewer ranks" : "more devices"));
  }
}

}  // namespace

int run_plan(const SimulateFlags& flags, const program::Print& print) {
  const workload::Model model = workload::parse_model(flags.model);
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  const SearchSpace space = space_of(flags);
  core::RecordWriter writer(flags.json_file);
  print(heading_text(model, machine));
  const auto begin = std::chrono::steady_clock::now();
  SearchResult result =
      search_layouts(model, machine, space, static_cast<std::size_t>(flags.top), core::usable_cores());
  predict_in_pieces(model, machine, result.best, core::usable_cores());
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  check_found(result, flags, machine);
  print(result_text(result, flags, wall_s));
  if (!writer.is_open()) return 0;
  const core::RunRecord run = run_record(flags);
  writer.write(run);
  for (const FoundLayout& found : result.best) {
    writer.write(simulation_record(run, model, found.layout, machine, found.prediction,
                                   wall_s / static_cast<double>(result.legal)));
  }
  writer.commit();
  return 0;
}

}  // namespace lockstep::simulate
