#include "bench/simulate/simulate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "bench/program/progress.h"
#include "bench/program/run_records.h"
#include "core/error.h"
#include "core/ranks.h"
#include "schedules/generators/catalogue.h"
#include "simulator/predict/search.h"

namespace lockstep::simulate {
namespace {

using schedules::Breakdown;
using schedules::Lane;
using simulator::FoundLayout;
using simulator::Machine;
using simulator::Prediction;
using simulator::SearchResult;
using simulator::SearchSpace;
using workload::Layout;
using workload::MemoryBytes;
using workload::Model;

constexpr double kGiga = 1e9;

std::int64_t exposed(const Breakdown& parts, Lane lane) {
  return parts.exposed_ps[static_cast<std::size_t>(lane)];
}

double percent(std::int64_t part_ps, const Prediction& prediction) {
  return percent_of_step(static_cast<double>(part_ps), prediction);
}

std::string memory_line(const char* kind, double bytes, const workload::MemoryBytes& all) {
  return fmt::format("#   {:<12} {:>9.2f} GB  {:>5.1f} %\n", kind, bytes / kGiga, 100 * bytes / all.total());
}

std::optional<core::ZeroCtaRecord> zero_cta_record(const Prediction& prediction) {
  if (prediction.without_zero_cta_s == 0) return std::nullopt;
  core::ZeroCtaRecord record{.step_ms_without = prediction.without_zero_cta_s * 1e3};
  for (const simulator::TakenCollectives& taken : prediction.collectives) {
    record.of += taken.count;
    if (taken.each.algorithm == simulator::CollectiveAlgorithm::copy_engine) record.collectives += taken.count;
  }
  return record;
}

// The collectives that take longest, with their algorithms.
std::string collectives_text(const Prediction& prediction) {
  constexpr std::size_t kMostRows = 8;
  if (prediction.collectives.empty()) return "";
  std::string text = fmt::format(
      "# Collectives of pipeline rank {}: count, bytes and time of each, algorithm and protocol\n", prediction.busiest);
  for (std::size_t i = 0; i < std::min(kMostRows, prediction.collectives.size()); ++i) {
    const simulator::TakenCollectives& taken = prediction.collectives[i];
    text += fmt::format("#   {:<12} {:<14} {:>6} x {:>10.3f} MB {:>10.1f} us  {}\n", schedules::name_of(taken.group),
                        schedules::name_of(taken.comm), taken.count, static_cast<double>(taken.bytes) / 1e6,
                        taken.each.time_us(), way_of(taken.each));
  }
  if (prediction.collectives.size() > kMostRows) {
    text += fmt::format("#   and {} others with less time\n", prediction.collectives.size() - kMostRows);
  }
  if (const auto zero_cta = zero_cta_record(prediction)) {
    text += fmt::format(
        "# zero_cta: {} of {} collectives take no multiprocessors; without it the step takes {:.2f} ms ({:+.2f} %)\n",
        zero_cta->collectives, zero_cta->of, zero_cta->step_ms_without,
        100 * (zero_cta->step_ms_without / (prediction.step_s * 1e3) - 1));
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
  const std::string active = model.experts > 0 ? fmt::format(", {:.4g}e9 per token", met) : "";
  return fmt::format(
      "# simulated: {} ({:.4g}e9 parameters{}, sequence {}) on {} ({}, {:.4g} TFLOP/s, {:.4g} GB)\n# FLOPs per token: "
      "{}; hfu includes recomputation; !: more memory than a device has\n",
      model.name, static_cast<double>(parameters_of(model)) / kGiga, active, model.sequence, machine.name,
      machine.device.name, machine.device.matrix_tflops, static_cast<double>(machine.device.memory_bytes) / kGiga,
      workload::kFlopConvention);
}

std::string columns_text() {
  return fmt::format(
      "#{:>9} {:>6} {:>6} {:>9} {:>11} {:>7} {:>7} {:>7} {:>7} {:>7} {:>8}  layout\n#{:>9} {:>6} {:>6} {:>9} {:>11} "
      "{:>7} {:>7} {:>7} {:>7} {:>7} {:>8}\n",
      "step", "mfu", "hfu", "TFLOP/s", "tokens", "compute", "tensor", "stages", "data", "bubble", "memory", "(ms)",
      "(%)", "(%)", "(per GPU)", "(/s)", "(%)", "(%)", "(%)", "(%)", "(%)", "(GB)");
}

std::string row_text(const Layout& layout, const Prediction& prediction) {
  const Breakdown& parts = prediction.parts[prediction.busiest];
  return fmt::format(
      " {:>9.2f} {:>6.2f} {:>6.2f} {:>9.1f} {:>11.0f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f}{}  {}\n",
      prediction.step_s * 1e3, 100 * prediction.mfu, 100 * prediction.hfu, tflops_per_gpu(layout, prediction),
      prediction.tokens_per_s, percent(parts.compute_ps(), prediction),
      percent(exposed(parts, Lane::tensor), prediction),
      percent(exposed(parts, Lane::send) + exposed(parts, Lane::receive), prediction),
      percent(exposed(parts, Lane::gather) + parts.exposed_reductions_ps(), prediction),
      percent(parts.bubble_ps, prediction), prediction.memory[prediction.fullest].total() / kGiga,
      prediction.fits ? " " : "!", text_of(layout));
}

std::string details_text(const Layout& layout, const Machine& machine, const Prediction& prediction, double wall_s) {
  std::string text = fmt::format("#\n# Time of pipeline rank {} of {}, which computes longest\n", prediction.busiest,
                                 prediction.parts.size());
  for (const auto& [name, ps] : program::named_parts(prediction.parts[prediction.busiest])) {
    text += fmt::format("#   {:<17} {:>12.3f} ms  {:>5.1f} %\n", name, static_cast<double>(ps) / kPsPerMs,
                        percent(ps, prediction));
  }
  const workload::MemoryBytes& memory = prediction.memory[prediction.fullest];
  text += fmt::format("# Memory of pipeline rank {}, which needs most\n", prediction.fullest);
  text += memory_line("weights", memory.weights, memory) + memory_line("gradients", memory.gradients, memory) +
          memory_line("optimizer", memory.optimizer, memory) + memory_line("activations", memory.activations, memory) +
          memory_line("buffers", memory.buffers, memory);
  if (machine.measured.cores > 0) text += memory_line("total", memory.total(), memory);
  text += fmt::format("#   {:<12} {:>9.2f} GB of {:.2f}: {}\n", machine.measured.cores > 0 ? "all ranks" : "total",
                      prediction.needed_bytes / kGiga, static_cast<double>(machine.device.memory_bytes) / kGiga,
                      prediction.fits ? "fits" : "does not fit");
  text += fmt::format("# Sent by pipeline rank {} per step:", prediction.busiest);
  for (const auto& [kind, bytes] : named_bytes(prediction.sent[prediction.busiest])) {
    text += fmt::format(" {} {:.3f} GB", kind, bytes / kGiga);
  }
  for (const auto& [level, bytes] : named_levels(prediction.sent_beyond[prediction.busiest], machine)) {
    text += fmt::format("; beyond its {} {:.3f} GB", level, bytes / kGiga);
  }
  text += "\n" + collectives_text(prediction);
  const schedules::Bubbles& b = prediction.bubbles;
  text += fmt::format(
      "# Bubble of forward and backward: {:.2f} % of ideal, {:.2f} % of makespan, {:.2f} % of own span, own {:.2f} % "
      "of ideal\n",
      100 * b.of_ideal, 100 * b.of_makespan, 100 * b.of_own_span, 100 * b.own_of_ideal);
  text += fmt::format("# {} ranks, {} simulated; {:.3f} s, of which {} events {:.3f} s ({:.1f} million/s)\n",
                      layout.ranks(), prediction.parts.size(), wall_s, prediction.events, prediction.engine_s,
                      static_cast<double>(prediction.events) / prediction.engine_s / 1e6);
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

namespace {

// Below ZeRO 2 gradients are reduced in place, and below ZeRO 3 weights are gathered in place: in memory that is
// already counted.
bool is_counted(schedules::Held kind, const workload::Layout& layout) {
  if (kind == schedules::Held::gradients) return layout.zero >= 2;
  return kind != schedules::Held::parameters || layout.zero == 3;
}

std::string kind_text(schedules::Held kind) {
  return kind == schedules::Held::gradients ? "gradients in reduction" : std::string(name_of(kind));
}

// The bytes that are held all the time, and those that are held temporarily.
core::MemoryRecord memory_record(const simulator::Prediction& prediction, const workload::Layout& layout) {
  core::MemoryRecord record{"bytes", {}};
  const std::size_t ranks_per_place = prediction.memory_over_time.size() / prediction.memory.size();
  for (std::size_t r = 0; r < prediction.memory_over_time.size(); ++r) {
    const workload::MemoryBytes& place = prediction.memory[r / ranks_per_place];
    auto& kinds = record.of_rank.emplace_back();
    kinds["weights"] = {{0, place.weights}};
    kinds["gradients"] = {{0, place.gradients}};
    kinds["optimizer"] = {{0, place.optimizer}};
    for (std::size_t k = 0; k < schedules::kNumHeld; ++k) {
      const schedules::MemoryCurve& curve = prediction.memory_over_time[r][k];
      const auto kind = static_cast<schedules::Held>(k);
      if (curve.empty() || !is_counted(kind, layout)) continue;
      auto& points = kinds[kind_text(kind)];
      for (const schedules::MemoryPoint& point : curve) {
        points.push_back({static_cast<double>(point.time_ps) / 1e9, static_cast<double>(point.bytes)});
      }
    }
  }
  return record;
}

}  // namespace

core::RunRecord run_record(const program::Invocation& flags) {
  core::RunRecord run = core::new_run(flags.program, flags.command);
  run.basis = "simulated";
  return run;
}

core::SimulationRecord simulation_record(const core::RunRecord& run, const workload::Model& model,
                                         const workload::Layout& layout, const simulator::Machine& machine,
                                         const simulator::Prediction& prediction, double wall_s) {
  core::SimulationRecord record;
  record.run = run.run;
  record.program = run.program;
  record.model.name = model.name;
  const auto number = [](auto value) { return static_cast<double>(value); };
  record.model.numbers = {{"layers", number(model.layers)},         {"hidden", number(model.hidden)},
                          {"heads", number(model.heads)},           {"kv_heads", number(model.kv_heads)},
                          {"ffn_hidden", number(model.ffn_hidden)}, {"vocabulary", number(model.vocabulary)},
                          {"sequence", number(model.sequence)},     {"experts", number(model.experts)}};
  record.model.parameters = parameters_of(model);
  record.layout.text = text_of(layout);
  record.layout.numbers = {
      {"tp", layout.tp},    {"cp", layout.cp},     {"ep", layout.ep},         {"dp", layout.dp},
      {"pp", layout.pp},    {"zero", layout.zero}, {"chunks", layout.chunks}, {"microbatch", layout.microbatch_size},
      {"skew", layout.skew}};
  record.schedule = layout.schedule;
  record.machine = machine.name;
  record.link_gbps = machine.levels.back().gbps;
  record.compression = text_of(layout.compression);
  record.weight_compression = text_of(workload::Compression(layout.weight_compression));
  record.ranks = layout.ranks();
  record.global_batch = layout.global_batch();
  record.step_ms = prediction.step_s * 1e3;
  record.parts_ms = parts_ms(prediction);
  const schedules::Bubbles& b = prediction.bubbles;
  record.bubbles = {b.of_ideal, b.of_makespan, b.of_own_span, b.own_of_ideal};
  record.mfu = prediction.mfu;
  record.hfu = prediction.hfu;
  record.flop_convention = workload::kFlopConvention;
  const double device_tera_seconds = prediction.step_s * number(layout.ranks()) * 1e12;
  record.model_tflops_per_gpu = prediction.model_flops / device_tera_seconds;
  record.hardware_tflops_per_gpu = prediction.hardware_flops / device_tera_seconds;
  record.tokens_per_s = prediction.tokens_per_s;
  const workload::MemoryBytes& memory = prediction.memory[prediction.fullest];
  record.memory_bytes = {{"weights", memory.weights},     {"gradients", memory.gradients},
                         {"optimizer", memory.optimizer}, {"activations", memory.activations},
                         {"buffers", memory.buffers},     {"total", memory.total()}};
  record.capacity_bytes = number(machine.device.memory_bytes);
  record.fits = prediction.fits;
  record.sent_bytes = named_bytes(prediction.sent[prediction.busiest]);
  if (machine.levels.size() > 1)
    record.sent_beyond_bytes = named_levels(prediction.sent_beyond[prediction.busiest], machine);
  record.zero_cta = zero_cta_record(prediction);
  record.events = prediction.events;
  record.engine_s = prediction.engine_s;
  record.wall_s = wall_s;
  if (!prediction.timeline.empty()) {
    record.timeline = program::timeline_record(prediction.step, prediction.timeline);
    record.memory = memory_record(prediction, layout);
  }
  return record;
}

namespace {

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

// Why a layout is slower than the first: the two parts of the step that differ most.
std::string why_text(const SearchResult& result, std::size_t i) {
  const FoundLayout& first = result.best.front();
  if (i == 0) {
    const auto& made = first.prediction;
    return fmt::format("computes {:.1f} % of its step", percent(made.parts[made.busiest].compute_ps(), made));
  }
  const FoundLayout& layout = result.best[i];
  core::NamedNumbers changes = longer_by_ms(first.prediction, layout.prediction);
  std::stable_sort(changes.begin(), changes.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
  const double slower = 100 * (layout.prediction.step_s / first.prediction.step_s - 1);
  return fmt::format("{:+.1f} %: {} {:+.1f} ms, {} {:+.1f} ms", slower, changes[0].first, changes[0].second,
                     changes[1].first, changes[1].second);
}

std::string result_text(const SearchResult& result, const SimulateFlags& flags, double wall_s) {
  std::string text = fmt::format(
      "# {} layouts of {} devices, {} sequences per step: {} need too much memory, {} simulated, {} cannot be among "
      "the best {} by their bounds; {:.2f} s\n",
      result.legal, flags.gpus, flags.batch, result.too_large, result.simulated, result.beaten, flags.top, wall_s);
  text += columns_text();
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    text += row_text(result.best[i].layout, result.best[i].prediction);
    text += fmt::format("#          {}\n", why_text(result, i));
  }
  return text;
}

// "; nearest: 80": the next smaller number of devices that has a valid layout. Empty if none of the next 200 has.
std::string fewer_devices_text(const workload::Model& model, const simulator::Machine& machine, SearchSpace space) {
  const std::int64_t least = std::max<std::int64_t>(1, space.gpus - 200);
  while (--space.gpus >= least) {
    if (!simulator::legal_layouts(model, machine, space).empty()) return fmt::format("; nearest: {}", space.gpus);
  }
  return "";
}

void check_found(const SearchResult& result, const SimulateFlags& flags, const workload::Model& model,
                 const simulator::Machine& machine, const SearchSpace& space) {
  if (result.legal == 0) {
    throw core::usage_error(
        fmt::format("plan: no layout of {} devices and {} sequences per step is valid for the model{}; allowed: "
                    "numbers of devices whose factors divide heads, layers and batch",
                    flags.gpus, flags.batch, fewer_devices_text(model, machine, space)));
  }
  if (result.best.empty()) {
    const bool shares = machine.measured.cores > 0;
    const double total_bytes = result.least_memory_bytes * static_cast<double>(flags.gpus);
    const double devices = std::ceil(total_bytes / static_cast<double>(machine.device.memory_bytes));
    throw core::usage_error(
        fmt::format("plan: the smallest of {} layouts needs {:.1f} GB {}, {} has {:.1f}; allowed: {}", result.legal,
                    result.least_memory_bytes / 1e9, shares ? "for all ranks together" : "per device", machine.name,
                    static_cast<double>(machine.device.memory_bytes) / 1e9,
                    shares ? "a smaller model, or fewer ranks"
                           : fmt::format("more devices, at least {:.0f} if memory divides evenly", devices)));
  }
}

}  // namespace

int run_plan(const SimulateFlags& flags, const program::Print& print) {
  const workload::Model model = workload::parse_model(flags.model);
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  SearchSpace space = space_of(flags);
  core::RecordWriter writer(flags.json_file);
  print(heading_text(model, machine));
  std::optional<program::Progress> progress(std::in_place, "layouts", 0);
  space.decided = [&](std::size_t done, std::size_t all) { progress->done(done, all); };
  const auto begin = std::chrono::steady_clock::now();
  SearchResult result =
      search_layouts(model, machine, space, static_cast<std::size_t>(flags.top), core::usable_cores());
  predict_in_pieces(model, machine, result.best, core::usable_cores());
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  progress.reset();
  check_found(result, flags, model, machine, space);
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
