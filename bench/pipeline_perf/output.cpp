#include "bench/pipeline_perf/output.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/pipeline_perf/cases.h"
#include "bench/program/place.h"
#include "bench/program/run_records.h"
#include "core/provenance.h"
#include "core/ranks.h"
#include "core/statistics.h"
#include "schedules/schedule.h"
#include "schedules/step/traces.h"
#include "workload/rules.h"

namespace lockstep::pipeline {
namespace {

void add_counts(core::ScheduleRecord& record, const Result& result) {
  for (const auto& rank : result.counts) {
    record.peak_activations.until_w.push_back(rank.peak.until_weight_gradient);
    record.peak_activations.until_b.push_back(rank.peak.until_input_gradient);
    record.sends.push_back(rank.sends);
  }
  record.hangs = result.hangs;
  record.ordering = {result.ordering.pairs, result.ordering.pairs_out_of_order, result.ordering.set_aside};
}

void add_times(core::ScheduleRecord& record, const Result& result) {
  record.makespan_ms = result.spans.makespan;
  record.own_span_ms = result.spans.own;
  record.own_span_ms_of_rank = result.spans.of_rank;
  record.work_ms = result.spans.work;
  const schedules::Bubbles& b = result.bubbles;
  record.bubbles = {b.of_ideal, b.of_makespan, b.of_own_span, b.own_of_ideal};
  record.exposed_ms = result.exposed_ms;
  record.samples_ms = {result.spans.makespan};
  if (!result.emulation) return;
  record.samples_ms = result.emulation->samples_ms;
  record.late_us = result.emulation->late_us;
  record.energy = result.emulation->energy;
  record.simulated_ms = result.simulated_ms;
}

core::FillerRecord filler_record(const FillerWork& work, const Filled& filled) {
  return {.layers = work.layers,
          .work_ms = {{"input_curvature", work.input_curvature},
                      {"output_curvature", work.output_curvature},
                      {"inversion", work.inversion},
                      {"work", work.work},
                      {"precondition", work.precondition}},
          .steps = static_cast<std::int64_t>(filled.steps.size()),
          .makespan_without_ms = filled.makespan_without_ms,
          .filled = filled.filled,
          .utilization = filled.utilization,
          .utilization_without = filled.utilization_without};
}

// Equal in each step of a refresh.
void repeat(core::MemoryRecord& memory, const Filled& filled) {
  for (auto& of_kinds : memory.of_rank) {
    for (auto& [kind, points] : of_kinds) {
      const std::vector<core::MemoryPoint> of_step = points;
      for (std::size_t s = 1; s < filled.steps.size(); ++s) {
        const double begin_ms = static_cast<double>(s) * filled.makespan_without_ms;
        for (const core::MemoryPoint& point : of_step) {
          if (point.value != points.back().value) points.push_back({begin_ms + point.time_ms, point.value});
        }
      }
    }
  }
}

}  // namespace

std::string trace_text(const schedules::Step& step, const schedules::StepTimeline& timeline,
                       const std::optional<Emulation>& emulation, Mode mode) {
  if (!emulation) return schedules::to_trace(step, timeline, name_of(Mode::simulated));
  const std::array parts{schedules::TracePart{name_of(Mode::simulated), &step, &emulation->simulated_timeline},
                         schedules::TracePart{basis_of(mode), &step, &timeline}};
  return schedules::to_trace(parts);
}

std::string trace_text(const Result& result, Mode mode) {
  if (!result.filled || result.emulation) return trace_text(result.step, result.timeline, result.emulation, mode);
  const Filled& filled = *result.filled;
  std::vector<schedules::TracePart> parts;
  for (std::size_t s = 0; s < filled.steps.size(); ++s) {
    parts.push_back(
        {name_of(mode) + ", step " + std::to_string(s + 1) + " of a refresh", &filled.steps[s], &filled.timelines[s]});
  }
  return schedules::to_trace(parts);
}

core::RunRecord run_record(const PipelineFlags& flags, const Cases& cases) {
  int ranks = 1;
  for (const Case& one : cases.all) ranks = std::max(ranks, one.shape.ranks);
  core::RunRecord run = program::new_run_record(flags, basis_of(flags.mode), ranks);
  if (flags.mode == Mode::real) program::add_place(flags.place.device, flags.mpi, ranks, run);
  return run;
}

core::ScheduleRecord schedule_record(const core::RunRecord& run, const PipelineFlags& flags, const Case& one,
                                     const Result& result) {
  core::ScheduleRecord record;
  record.run = run.run;
  record.program = run.program;
  record.schedule = one.name;
  record.source = one.source;
  record.ranks = one.shape.ranks;
  record.microbatches = one.shape.microbatches;
  record.chunks = one.schedule.chunks();
  record.pipes = one.schedule.num_pipes();
  record.trained = one.entry == nullptr || workload::untrainable(*one.entry, one.schedule).empty();
  record.basis = run.basis;
  const schedules::Times& t = flags.times_ms;
  record.times_ms = core::StageTimesRecord{.forward = t.forward,
                                           .input_gradient = t.input_gradient,
                                           .weight_gradient = t.weight_gradient,
                                           .message = t.message};
  if (t.attention > 0) record.times_ms->attention = t.attention;
  if (flags.evict_ms > 0) record.times_ms->evict = flags.evict_ms;
  record.slice_tokens = one.shape.slice_tokens;
  if (evicts_activations(one.schedule)) {
    for (const auto& rank : result.counts) record.evictions.push_back(rank.evictions);
  }
  record.memory_limit = flags.memory_limit;
  record.w_memory = flags.w_share();
  record.bound_ms = result.bound_ms;
  add_counts(record, result);
  add_times(record, result);
  if (one.entry != nullptr) record.weight_versions.emplace();
  for (std::int32_t r = 0; one.entry != nullptr && r < one.shape.ranks; ++r) {
    record.weight_versions->push_back(schedules::weight_versions(*one.entry, one.shape, r));
  }
  if (const auto& form = result.closed_form) {
    record.closed_form_ms = core::ClosedFormRecord{form->cost, form->of_makespan ? "makespan" : "own_span"};
  }
  record.timeline = program::timeline_record(result.step, result.timeline);
  if (result.filled) {
    record.filler = filler_record(flags.filler, *result.filled);
    if (!result.emulation) record.timeline = timeline_record(*result.filled);
  }
  record.memory = activations_over_time(one.schedule, result.step, result.timeline, flags.w_share());
  if (result.filled && !result.emulation) repeat(*record.memory, *result.filled);
  return record;
}

namespace {

struct Cell {
  const char* name;
  const char* unit;
  int width;
  std::string text;
};

std::string percent(double share) {
  return fmt::format("{:.2f}", 100 * share);
}

// "ok" or "hang"; for buffered channels the smallest number of slots that works.
std::string verdict(const Result& result, const std::string& name) {
  for (const auto& [transport, hang] : result.hangs) {
    if (transport == name) return hang ? "hang" : "ok";
  }
  return "N/A";
}

std::string slots_text(const Result& result) {
  const std::string prefix = "buffered_";
  for (const auto& [transport, hang] : result.hangs) {
    if (!hang && transport.starts_with(prefix)) return transport.substr(prefix.size());
  }
  return ">4";
}

std::string form_text(const Result& result) {
  return result.closed_form ? fmt::format("{:.3f}", result.closed_form->cost) : "N/A";
}

std::string difference_text(const Result& result) {
  if (!result.closed_form) return "N/A";
  const double mine = result.closed_form->of_makespan ? result.spans.makespan : result.spans.own;
  const double difference = mine - result.closed_form->cost;
  return fmt::format("{:.3f}", std::abs(difference) < 5e-7 ? 0.0 : difference);
}

struct Worst {
  double until_w = 0;
  double until_b = 0;
  std::int64_t sends = 0;
};

Worst worst_of(const Result& result) {
  Worst worst;
  for (const auto& rank : result.counts) {
    worst.until_w = std::max(worst.until_w, rank.peak.until_weight_gradient);
    worst.until_b = std::max(worst.until_b, rank.peak.until_input_gradient);
    worst.sends = std::max(worst.sends, rank.sends);
  }
  return worst;
}

// Emulated / simulated - 1.
double excess_of(const Result& result) {
  return core::median(result.emulation->samples_ms) / result.simulated_ms - 1;
}

void add_emulation(std::vector<Cell>& cells, const PipelineFlags& flags, const Result& result) {
  cells.push_back({"simulated", "(ms)", 10, fmt::format("{:.3f}", result.simulated_ms)});
  cells.push_back(
      {flags.mode == Mode::real ? "real/sim" : "emu/sim", "(%)", 8, fmt::format("{:+.2f}", 100 * excess_of(result))});
  cells.push_back({"late", "(us)", 7, fmt::format("{:.0f}", result.emulation->late_us)});
}

void add_filled(std::vector<Cell>& cells, const Filled& filled) {
  cells.push_back({"refresh", "(steps)", 7, fmt::format("{}", filled.steps.size())});
  cells.push_back({"filled", "(%)", 7, percent(filled.filled)});
  cells.push_back({"util", "(%)", 6, percent(filled.utilization_without)});
  cells.push_back({"u_filled", "(%)", 8, percent(filled.utilization)});
  cells.push_back({"unfilled", "(ms)", 10, fmt::format("{:.3f}", filled.makespan_without_ms)});
}

std::vector<Cell> cells_of(const PipelineFlags& flags, const Case& one, const Result& result) {
  const Worst worst = worst_of(result);
  std::vector<Cell> cells{
      {"ranks", "", 5, fmt::format("{}", one.shape.ranks)},
      {"micro", "", 5, fmt::format("{}", one.shape.microbatches)},
      {"chunks", "", 6, fmt::format("{}", one.schedule.chunks())},
      {"slices", "", 6, fmt::format("{}", one.schedule.slices())},
      {"makespan", "(ms)", 10, fmt::format("{:.3f}", result.spans.makespan)},
      {"own_span", "(ms)", 10, fmt::format("{:.3f}", result.spans.own)},
      {"bound", "(ms)", 10, result.bound_ms ? fmt::format("{:.3f}", *result.bound_ms) : "N/A"},
      {"closed", "(ms)", 10, form_text(result)},
      {"diff", "(ms)", 7, difference_text(result)},
      {"of_ideal", "(%)", 8, percent(result.bubbles.of_ideal)},
      {"of_mksp", "(%)", 8, percent(result.bubbles.of_makespan)},
      {"of_own", "(%)", 8, percent(result.bubbles.of_own_span)},
      {"own_ideal", "(%)", 9, percent(result.bubbles.own_of_ideal)},
      {"peak_W", "(mb)", 7, fmt::format("{:.2f}", worst.until_w) + (is_over_memory(result, flags) ? "!" : "")},
      {"peak_B", "(mb)", 6, fmt::format("{:.2f}", worst.until_b)},
      {"sends", "", 5, fmt::format("{}", worst.sends)},
      {"blocking", "", 8, verdict(result, "blocking")},
      {"batched", "", 7, verdict(result, "batched")},
      {"slots", "", 5, slots_text(result)},
  };
  if (result.filled) add_filled(cells, *result.filled);
  if (result.emulation) add_emulation(cells, flags, result);
  return cells;
}

std::string slices_text(const Case& one) {
  const auto& lengths = one.schedule.slice_tokens;
  if (std::adjacent_find(lengths.begin(), lengths.end(), std::not_equal_to<>()) == lengths.end()) return "";
  return fmt::format("# {}: slices of {} tokens\n", one.name, fmt::join(lengths, ", "));
}

std::string evictions_text(const Case& one, const Result& result) {
  if (!evicts_activations(one.schedule)) return "";
  std::vector<std::int64_t> of_rank;
  for (const auto& rank : result.counts) of_rank.push_back(rank.evictions);
  return fmt::format("# {}: microbatches of {} whose activations each rank evicts and fetches back: {}\n", one.name,
                     one.shape.microbatches, fmt::join(of_rank, " "));
}

std::string place_text(const PipelineFlags& flags) {
  if (flags.place.device.cuda) return "\n# " + program::gpus_text(flags.place.device, flags.stages.front());
  return flags.mpi == nullptr ? "" : "\n# messages by " + flags.mpi->library_version();
}

std::string mode_text(const PipelineFlags& flags) {
  if (flags.mode == Mode::simulated) return "SIMULATED, in virtual time";
  if (flags.mode == Mode::emulated) return "EMULATED, in wall-clock time; kernels wait";
  const RealModel& model = flags.model;
  return fmt::format(
      "MEASURED: {} GPT layer{} per rank, hidden {}, {} sequences of {} tokens per microbatch, {}; {} cores\n"
      "# times are of one rank alone; slowdown by ranks that share cores is measured, not simulated{}",
      model.layers, model.layers == 1 ? "" : "s", model.hidden, model.batch, model.length, model.dtype,
      core::usable_cores(), place_text(flags));
}

std::string filler_text(const FillerWork& work) {
  return fmt::format(
      "# work for the bubbles, on a rank's share: {:g} ms after a microbatch's forward, {:g} ms after its backward,\n"
      "#   then {:g} ms of inversions, {:g} ms of other work, each in {} kernel{}; and in each step {:g} ms after "
      "the\n"
      "#   gradients. refresh: steps whose bubbles take all of it once; filled: of these bubbles; util, u_filled: the "
      "part\n"
      "#   of the time in which ranks compute, in a step with none of it and in these steps; unfilled: makespan with "
      "empty\n"
      "#   bubbles\n",
      work.input_curvature, work.output_curvature, work.inversion, work.work, work.layers, work.layers == 1 ? "" : "s",
      work.precondition);
}

}  // namespace

std::string heading_text(const PipelineFlags& flags, const Cases& cases) {
  const auto& t = flags.times_ms;
  std::string text =
      fmt::format("# lockstep version {}, {}: {}\n", core::build().version, flags.program, mode_text(flags));
  text +=
      fmt::format("# a microbatch on a rank's share: forward {:g} ms, input gradient {:g} ms, weight gradient {:g} ms",
                  t.forward, t.input_gradient, t.weight_gradient);
  text += fmt::format("; messages take {:g} ms\n", t.message);
  if (t.attention > 0)
    text += fmt::format("# causal attention is {:g} % of forward and input gradient\n", 100 * t.attention);
  if (flags.evict_ms > 0)
    text += fmt::format("# evicting a microbatch's activations, or fetching them, takes {:g} ms\n", flags.evict_ms);
  text += "# bubbles: of_ideal (makespan-work)/work, of_mksp (makespan-work)/makespan, of_own (own-work)/own,\n";
  text += fmt::format(
      "#   own_ideal (own-work)/work; peak_W, peak_B: microbatches whose activations the worst rank holds until W\n"
      "#   ({:g} of them from I on), until B or I; sends: of the busiest rank; blocking, batched: does the step\n"
      "#   end (ok) or hang if each send waits for its receive, or if messages between two computations are one "
      "batch;\n"
      "#   slots: messages per pair of ranks that channels must hold, so that no send waits; bound: no schedule in "
      "the\n"
      "#   row's memory (limit, or peak_W) has a shorter own span\n",
      flags.w_share());
  if (flags.filler.given()) text += filler_text(flags.filler);
  if (flags.memory_limit) text += fmt::format("# memory limit {:g}; rows above it have a !\n", *flags.memory_limit);
  for (const std::string& line : cases.left_out) text += "# left out: " + line + "\n";
  return text;
}

std::string columns_text(const PipelineFlags& flags, const Case& one, const Result& result) {
  std::string names = fmt::format("#{:<14}", "schedule");
  std::string units = fmt::format("#{:<14}", "");
  for (const Cell& cell : cells_of(flags, one, result)) {
    names += fmt::format(" {:>{}}", cell.name, cell.width);
    units += fmt::format(" {:>{}}", cell.unit, cell.width);
  }
  return names + "\n" + units + "\n";
}

std::string row_text(const PipelineFlags& flags, const Case& one, const Result& result) {
  std::string text = fmt::format("{:<15}", one.name);
  for (const Cell& cell : cells_of(flags, one, result)) text += fmt::format(" {:>{}}", cell.text, cell.width);
  return text + "\n";
}

void Agreement::add(const Case& one, const Result& result) {
  if (!result.emulation) return;
  shares_.push_back(std::abs(excess_of(result)));
  if (shares_.size() > 1 && shares_.back() <= worst_) return;
  worst_ = shares_.back();
  worst_name_ = fmt::format("{}, {} ranks", one.name, one.shape.ranks);
}

std::string Agreement::text() const {
  if (shares_.size() < 2) return "";
  return fmt::format("# {} off simulated, {} rows: median {:.2f} %, worst {:.2f} % ({})\n", name_of(mode_),
                     shares_.size(), 100 * core::median(shares_), 100 * worst_, worst_name_);
}

std::string footing_text(const Case& one, const Result& result) {
  std::string text = slices_text(one) + evictions_text(one, result);
  for (const auto& [transport, hang] : result.hangs) {
    if (hang) text += fmt::format("# {} hangs over {} channels: {}\n", one.name, transport, *hang);
  }
  return text;
}

}  // namespace lockstep::pipeline
