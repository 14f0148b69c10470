#include "bench/pipeline_perf/output.h"

#include <algorithm>
#include <array>
#include <cmath>

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

void add_spans(core::ScheduleRecord& record, const Result& result) {
  record.makespan_ms = result.spans.makespan;
  record.own_span_ms = result.spans.own;
  record.own_span_ms_of_rank = result.spans.of_rank;
  record.work_ms = result.spans.work;
  const schedules::Bubbles& b = result.bubbles;
  record.bubbles = {b.of_ideal, b.of_makespan, b.of_own_span, b.own_of_ideal};
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

std::string trace_text(const TimedStep& timed, Mode mode) {
  if (!timed.emulation) return schedules::to_trace(timed.step, timed.timeline, name_of(Mode::simulated));
  const std::array parts{
      schedules::TracePart{name_of(Mode::simulated), &timed.step, &timed.emulation->simulated_timeline},
      schedules::TracePart{basis_of(mode), &timed.step, &timed.timeline}};
  return schedules::to_trace(parts);
}

void add_times(const TimedStep& timed, core::ScheduleRecord& record) {
  for (const schedules::Breakdown& rank : schedules::breakdown_of(timed.step, timed.timeline)) {
    record.exposed_ms.push_back(static_cast<double>(rank.all_exposed_ps()) / kPsPerMs);
  }
  record.timeline = program::timeline_record(timed.step, timed.timeline);
  record.samples_ms = {record.makespan_ms};
  if (!timed.emulation) return;
  record.samples_ms = timed.emulation->samples_ms;
  record.late_us = timed.emulation->late_us;
  record.energy = timed.emulation->energy;
  record.simulated_ms = timed.simulated_ms;
}

std::string trace_text(const Result& result, Mode mode) {
  if (!result.filled || result.emulation) return trace_text(static_cast<const TimedStep&>(result), mode);
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
  for (const Case& bench_case : cases.all) ranks = std::max(ranks, bench_case.shape.ranks);
  core::RunRecord run = program::new_run_record(flags, basis_of(flags.mode), ranks);
  if (flags.mode == Mode::real) program::add_place(flags.place.device, flags.mpi, ranks, run);
  return run;
}

core::ScheduleRecord schedule_record(const core::RunRecord& run, const PipelineFlags& flags, const Case& bench_case,
                                     const Result& result) {
  core::ScheduleRecord record;
  record.run = run.run;
  record.program = run.program;
  record.schedule = bench_case.name;
  record.source = bench_case.source;
  record.ranks = bench_case.shape.ranks;
  record.microbatches = bench_case.shape.microbatches;
  record.chunks = bench_case.schedule.chunks();
  record.pipes = bench_case.schedule.num_pipes();
  record.trained = bench_case.entry == nullptr || workload::untrainable(*bench_case.entry, bench_case.schedule).empty();
  record.basis = run.basis;
  const schedules::Times& t = flags.times_ms;
  record.times_ms = core::StageTimesRecord{.forward = t.forward,
                                           .input_gradient = t.input_gradient,
                                           .weight_gradient = t.weight_gradient,
                                           .message = t.message};
  if (t.attention > 0) record.times_ms->attention = t.attention;
  if (flags.evict_ms > 0) record.times_ms->evict = flags.evict_ms;
  record.slice_tokens = bench_case.shape.slice_tokens;
  if (evicts_activations(bench_case.schedule)) {
    for (const auto& rank : result.counts) record.evictions.push_back(rank.evictions);
  }
  record.memory_limit = flags.memory_limit;
  record.w_memory = flags.w_share();
  record.bound_ms = result.bound_ms;
  add_counts(record, result);
  add_spans(record, result);
  add_times(result, record);
  if (bench_case.entry != nullptr) record.weight_versions.emplace();
  for (std::int32_t r = 0; bench_case.entry != nullptr && r < bench_case.shape.ranks; ++r) {
    record.weight_versions->push_back(schedules::weight_versions(*bench_case.entry, bench_case.shape, r));
  }
  if (const auto& form = result.closed_form) {
    record.closed_form_ms = core::ClosedFormRecord{form->cost, form->of_makespan ? "makespan" : "own_span"};
  }
  if (result.filled) {
    record.filler = filler_record(flags.filler, *result.filled);
    if (!result.emulation) record.timeline = timeline_record(*result.filled);
  }
  record.memory = activations_over_time(bench_case.schedule, result.step, result.timeline, flags.w_share());
  if (result.filled && !result.emulation) repeat(*record.memory, *result.filled);
  return record;
}

namespace {

using Column = program::Column<Row>;

std::string ms_or_none(const std::optional<double>& ms) {
  return ms ? fmt::format("{:.3f}", *ms) : "N/A";
}

// Shares in percent.
template <class Share>
Column percents(const char* name, int width, const Share& share) {
  return {{name, "(%)", width}, {2, 100}, share};
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

constexpr program::Shown kMs{.decimals = 3};

std::vector<Column> filled_columns() {
  return {{{"refresh", "(steps)", 7}, program::kWhole, [](auto& r) { return r.result.filled->steps.size(); }},
          percents("filled", 7, [](auto& r) { return r.result.filled->filled; }),
          percents("util", 6, [](auto& r) { return r.result.filled->utilization_without; }),
          percents("u_filled", 8, [](auto& r) { return r.result.filled->utilization; }),
          {{"unfilled", "(ms)", 10}, kMs, [](auto& r) { return r.result.filled->makespan_without_ms; }}};
}

std::vector<Column> emulation_columns(Mode mode) {
  return {{{"simulated", "(ms)", 10}, kMs, [](auto& r) { return r.result.simulated_ms; }},
          {{mode == Mode::real ? "real/sim" : "emu/sim", "(%)", 8},
           [](auto& r) { return fmt::format("{:+.2f}", 100 * excess_of(r.result)); }},
          {{"late", "(us)", 7}, program::kWhole, [](auto& r) { return r.result.emulation->late_us; }}};
}

std::string slices_text(const Case& bench_case) {
  const auto& lengths = bench_case.schedule.slice_tokens;
  if (std::adjacent_find(lengths.begin(), lengths.end(), std::not_equal_to<>()) == lengths.end()) return "";
  return fmt::format("# {}: slices of {} tokens\n", bench_case.name, fmt::join(lengths, ", "));
}

std::string evictions_text(const Case& bench_case, const Result& result) {
  if (!evicts_activations(bench_case.schedule)) return "";
  std::vector<std::int64_t> of_rank;
  for (const auto& rank : result.counts) of_rank.push_back(rank.evictions);
  return fmt::format("# {}: microbatches of {} whose activations each rank evicts and fetches back: {}\n",
                     bench_case.name, bench_case.shape.microbatches, fmt::join(of_rank, " "));
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
      "#   then {:g} ms of inversions, {:g} ms of other work, each in {} kernel{}; and in each step {:g} ms after the\n"
      "#   gradients. refresh: number of steps whose bubbles hold all this work once; filled: part of these bubbles; "
      "util, u_filled: the part\n"
      "#   of the time in which ranks compute, in a step without this work and in these steps; unfilled: makespan with "
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
      "#   ({:g} of these from I on), until B or I; sends: of the busiest rank; blocking, batched: does the step\n"
      "#   end (ok) or hang if each send waits for its receive, or if messages between two computations are one "
      "batch;\n"
      "#   slots: messages per pair of ranks that channels must hold, so that no send waits; bound: no schedule in "
      "the\n"
      "#   row's memory (limit, or peak_W) has a shorter own span\n",
      flags.w_share());
  if (flags.filler.given()) text += filler_text(flags.filler);
  if (flags.memory_limit) text += fmt::format("# memory limit {:g}; rows above it have a !\n", *flags.memory_limit);
  for (const std::string& line : cases.left_out) text += "# skipped: " + line + "\n";
  return text;
}

std::vector<Column> columns(const PipelineFlags& flags) {
  using program::kWhole;
  const auto closed = [](auto& r) {
    return ms_or_none(r.result.closed_form ? std::optional(r.result.closed_form->cost) : std::nullopt);
  };
  const auto peak_w = [](auto& r) {
    return fmt::format("{:.2f}", worst_of(r.result).until_w) + (is_over_memory(r.result, r.flags) ? "!" : "");
  };
  std::vector<Column> columns{
      {{"schedule", "", -14}, [](auto& r) { return r.one.name; }},
      {{"ranks", "", 5}, kWhole, [](auto& r) { return r.one.shape.ranks; }},
      {{"micro", "", 5}, kWhole, [](auto& r) { return r.one.shape.microbatches; }},
      {{"chunks", "", 6}, kWhole, [](auto& r) { return r.one.schedule.chunks(); }},
      {{"slices", "", 6}, kWhole, [](auto& r) { return r.one.schedule.slices(); }},
      {{"makespan", "(ms)", 10}, kMs, [](auto& r) { return r.result.spans.makespan; }},
      {{"own_span", "(ms)", 10}, kMs, [](auto& r) { return r.result.spans.own; }},
      {{"bound", "(ms)", 10}, [](auto& r) { return ms_or_none(r.result.bound_ms); }},
      {{"closed", "(ms)", 10}, closed},
      {{"diff", "(ms)", 7}, [](auto& r) { return difference_text(r.result); }},
      percents("of_ideal", 8, [](auto& r) { return r.result.bubbles.of_ideal; }),
      percents("of_mksp", 8, [](auto& r) { return r.result.bubbles.of_makespan; }),
      percents("of_own", 8, [](auto& r) { return r.result.bubbles.of_own_span; }),
      percents("own_ideal", 9, [](auto& r) { return r.result.bubbles.own_of_ideal; }),
      {{"peak_W", "(mb)", 7}, peak_w},
      {{"peak_B", "(mb)", 6}, {}, [](auto& r) { return worst_of(r.result).until_b; }},
      {{"sends", "", 5}, kWhole, [](auto& r) { return worst_of(r.result).sends; }},
      {{"blocking", "", 8}, [](auto& r) { return verdict(r.result, "blocking"); }},
      {{"batched", "", 7}, [](auto& r) { return verdict(r.result, "batched"); }},
      {{"slots", "", 5}, [](auto& r) { return slots_text(r.result); }},
  };
  const auto add = [&](const std::vector<Column>& more) { columns.insert(columns.end(), more.begin(), more.end()); };
  if (flags.filler.given()) add(filled_columns());
  if (flags.mode != Mode::simulated) add(emulation_columns(flags.mode));
  return columns;
}

void Agreement::add(const Case& bench_case, const Result& result) {
  if (!result.emulation) return;
  shares_.push_back(std::abs(excess_of(result)));
  if (shares_.size() > 1 && shares_.back() <= worst_) return;
  worst_ = shares_.back();
  worst_name_ = fmt::format("{}, {} ranks", bench_case.name, bench_case.shape.ranks);
}

std::string Agreement::text() const {
  if (shares_.size() < 2) return "";
  return fmt::format("# {} off simulated, {} rows: median {:.2f} %, worst {:.2f} % ({})\n", name_of(mode_),
                     shares_.size(), 100 * core::median(shares_), 100 * worst_, worst_name_);
}

std::string footing_text(const Case& bench_case, const Result& result) {
  std::string text = slices_text(bench_case) + evictions_text(bench_case, result);
  for (const auto& [transport, hang] : result.hangs) {
    if (hang) text += fmt::format("# {} hangs over {} channels: {}\n", bench_case.name, transport, *hang);
  }
  return text;
}

}  // namespace lockstep::pipeline
