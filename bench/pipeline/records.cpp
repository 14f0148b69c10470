#include "bench/pipeline/records.h"

#include <algorithm>
#include <array>

#include "bench/pipeline/filled.h"
#include "bench/pipeline/memory.h"
#include "bench/place/place.h"
#include "core/cores.h"
#include "schedules/step/trace.h"
#include "schedules/token.h"

namespace lockstep::pipeline {
namespace {

double ms_of(std::int64_t ps) {
  return static_cast<double>(ps) / 1e9;
}

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

core::TimelineRecord timeline_record(const schedules::Step& step, const schedules::StepTimeline& timeline) {
  core::TimelineRecord record;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    auto& list = record.ranks.emplace_back();
    for (std::size_t i = 0; i < timeline[r].size(); ++i) {
      const schedules::Task& task = step.of_rank[r].tasks[i];
      list.push_back({std::string(schedules::name_of(task.lane)), std::string(schedules::name_of(task.op)), task.stage,
                      task.microbatch, task.part, ms_of(timeline[r][i].start_ps), ms_of(timeline[r][i].end_ps)});
    }
  }
  return record;
}

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

core::RunRecord new_run_record(const std::string& program, const std::vector<std::string>& command, Mode mode,
                               int ranks) {
  core::RunRecord run = core::new_run(program, command);
  run.ranks = ranks;
  run.oversubscribed = mode != Mode::simulated && ranks > core::usable_cores();
  run.basis = basis_of(mode);
  return run;
}

core::RunRecord run_record(const PipelineFlags& flags, const Cases& cases) {
  int ranks = 1;
  for (const Case& one : cases.all) ranks = std::max(ranks, one.shape.ranks);
  core::RunRecord run = new_run_record(flags.program, flags.command, flags.mode, ranks);
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
  record.timeline = timeline_record(result.step, result.timeline);
  if (result.filled) {
    record.filler = filler_record(flags.filler, *result.filled);
    if (!result.emulation) record.timeline = timeline_record(*result.filled);
  }
  record.memory = activations_over_time(one.schedule, result.step, result.timeline, flags.w_share());
  if (result.filled && !result.emulation) repeat(*record.memory, *result.filled);
  return record;
}

}  // namespace lockstep::pipeline
