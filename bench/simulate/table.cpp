#include "bench/simulate/table.h"
#include "bench/simulate/study.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/pipeline/parts.h"
#include "schedules/generators/catalogue.h"

namespace lockstep::simulate {
namespace {

using schedules::Breakdown;
using schedules::Lane;
using simulator::Machine;
using simulator::Prediction;
using workload::Layout;
using workload::MemoryBytes;
using workload::Model;

constexpr double kGiga = 1e9;

std::int64_t exposed(const Breakdown& parts, Lane lane) {
  return parts.exposed_ps[static_cast<std::size_t>(lane)];
}

double percent(std::int64_t part_ps, const Prediction& made) {
  return 100 * static_cast<double>(part_ps) / (made.step_s * 1e12);
}

std::string memory_line(const char* kind, double bytes, const workload::MemoryBytes& all) {
  return fmt::format("#   {:<12} {:>9.2f} GB  {:>5.1f} %\n", kind, bytes / kGiga, 100 * bytes / all.total());
}

// The collectives that take longest, with their algorithms.
std::string collectives_text(const Prediction& made) {
  constexpr std::size_t kMostRows = 8;
  if (made.collectives.empty()) return "";
  std::string text = fmt::format(
      "# Collectives of pipeline rank {}: count, bytes and time of each, algorithm and protocol\n", made.busiest);
  for (std::size_t i = 0; i < std::min(kMostRows, made.collectives.size()); ++i) {
    const simulator::TakenCollectives& taken = made.collectives[i];
    text += fmt::format("#   {:<12} {:<14} {:>6} x {:>10.3f} MB {:>10.1f} us  {}\n", schedules::name_of(taken.group),
                        schedules::name_of(taken.comm), taken.count, static_cast<double>(taken.bytes) / 1e6,
                        taken.each.time_us(), way_of(taken.each));
  }
  if (made.collectives.size() > kMostRows) {
    text += fmt::format("#   and {} others with less time\n", made.collectives.size() - kMostRows);
  }
  return text;
}

}  // namespace

std::vector<std::pair<std::string, double>> named_bytes(const schedules::SentBytes& sent) {
  std::vector<std::pair<std::string, double>> named{{"messages", sent.messages}};
  for (std::size_t kind = 0; kind < schedules::kNumGroupKinds; ++kind) {
    if (sent.of_groups[kind] == 0) continue;
    named.emplace_back(schedules::name_of(static_cast<schedules::GroupKind>(kind)), sent.of_groups[kind]);
  }
  return named;
}

std::vector<std::pair<std::string, double>> named_levels(const std::vector<double>& of_levels, const Machine& machine) {
  std::vector<std::pair<std::string, double>> named;
  for (std::size_t level = 0; level < of_levels.size(); ++level) {
    named.emplace_back(machine.levels[level].name, of_levels[level]);
  }
  return named;
}

std::string heading_text(const Model& model, const Machine& machine) {
  const double met = static_cast<double>(active_parameters_of(model)) / kGiga;
  const std::string active = model.experts > 0 ? fmt::format(", {:.4g}e9 a token", met) : "";
  return fmt::format(
      "# simulated: {} ({:.4g}e9 parameters{}, sequence {}) on {} ({}, {:.4g} TFLOP/s, {:.4g} GB)\n# FLOPs per token: "
      "{}; "
      "hfu includes recomputation\n",
      model.name, static_cast<double>(parameters_of(model)) / kGiga, active, model.sequence, machine.name,
      machine.device.name, machine.device.matrix_tflops, static_cast<double>(machine.device.memory_bytes) / kGiga,
      workload::kFlopConvention);
}

std::string columns_text() {
  return fmt::format(
      "#{:>9} {:>6} {:>6} {:>9} {:>11} {:>7} {:>7} {:>7} {:>7} {:>7} {:>8}  layout\n#{:>9} {:>6} {:>6} {:>9} "
      "{:>11} {:>7} {:>7} {:>7} {:>7} {:>7} {:>8}\n",
      "step", "mfu", "hfu", "TFLOP/s", "tokens", "compute", "tensor", "stages", "data", "bubble", "memory", "(ms)",
      "(%)", "(%)", "(per GPU)", "(/s)", "(%)", "(%)", "(%)", "(%)", "(%)", "(GB)");
}

std::string row_text(const Layout& layout, const Prediction& made) {
  const Breakdown& parts = made.parts[made.busiest];
  const double tflops = made.hardware_flops / made.step_s / static_cast<double>(layout.ranks()) / 1e12;
  return fmt::format(
      " {:>9.2f} {:>6.2f} {:>6.2f} {:>9.1f} {:>11.0f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f} "
      "{:>7.2f}{}  {}\n",
      made.step_s * 1e3, 100 * made.mfu, 100 * made.hfu, tflops, made.tokens_per_s, percent(parts.compute_ps(), made),
      percent(exposed(parts, Lane::tensor), made),
      percent(exposed(parts, Lane::send) + exposed(parts, Lane::receive), made),
      percent(exposed(parts, Lane::gather) + parts.exposed_reductions_ps(), made), percent(parts.bubble_ps, made),
      made.memory[made.fullest].total() / kGiga, made.fits ? " " : "!", text_of(layout));
}

std::string details_text(const Layout& layout, const Machine& machine, const Prediction& made, double wall_s) {
  std::string text =
      fmt::format("#\n# Time of pipeline rank {} of {}, which computes longest\n", made.busiest, made.parts.size());
  for (const auto& [name, ps] : pipeline::named_parts(made.parts[made.busiest])) {
    text += fmt::format("#   {:<17} {:>12.3f} ms  {:>5.1f} %\n", name, static_cast<double>(ps) / kPsPerMs,
                        percent(ps, made));
  }
  const workload::MemoryBytes& memory = made.memory[made.fullest];
  text += fmt::format("# Memory of pipeline rank {}, which needs most\n", made.fullest);
  text += memory_line("weights", memory.weights, memory) + memory_line("gradients", memory.gradients, memory) +
          memory_line("optimizer", memory.optimizer, memory) + memory_line("activations", memory.activations, memory) +
          memory_line("buffers", memory.buffers, memory);
  if (machine.measured.cores > 0) text += memory_line("total", memory.total(), memory);
  text += fmt::format("#   {:<12} {:>9.2f} GB of {:.2f}: {}\n", machine.measured.cores > 0 ? "all ranks" : "total",
                      made.needed_bytes / kGiga, static_cast<double>(machine.device.memory_bytes) / kGiga,
                      made.fits ? "fits" : "does not fit");
  text += fmt::format("# Sent by pipeline rank {} per step:", made.busiest);
  for (const auto& [kind, bytes] : named_bytes(made.sent[made.busiest])) {
    text += fmt::format(" {} {:.3f} GB", kind, bytes / kGiga);
  }
  for (const auto& [level, bytes] : named_levels(made.sent_beyond[made.busiest], machine)) {
    text += fmt::format("; beyond its {} {:.3f} GB", level, bytes / kGiga);
  }
  text += "\n" + collectives_text(made);
  const schedules::Bubbles& b = made.bubbles;
  text += fmt::format(
      "# Bubble of forward and backward: {:.2f} % of ideal, {:.2f} % of makespan, {:.2f} % of own span, own "
      "{:.2f} % of ideal\n",
      100 * b.of_ideal, 100 * b.of_makespan, 100 * b.of_own_span, 100 * b.own_of_ideal);
  text += fmt::format("# {} ranks, {} simulated; {:.3f} s, of which {} events {:.3f} s ({:.1f} million/s)\n",
                      layout.ranks(), made.parts.size(), wall_s, made.events, made.engine_s,
                      static_cast<double>(made.events) / made.engine_s / 1e6);
  return text;
}

std::string list_text() {
  std::string text = "models:";
  for (const std::string& name : workload::model_names()) text += " " + name;
  text += "\nfields of a model:\n";
  for (const std::string& field : workload::model_fields()) text += "  " + field + "\n";
  text += "machines:";
  for (const std::string& name : simulator::machine_names()) text += " " + name;
  text += "\nfields of a layout:\n";
  for (const std::string& field : workload::layout_fields()) text += "  " + field + "\n";
  text += "schedules:";
  for (const auto& entry : schedules::catalogue()) text += " " + std::string(entry.name);
  return text + "\n";
}

}  // namespace lockstep::simulate
