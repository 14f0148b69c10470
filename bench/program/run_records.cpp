#include "bench/program/run_records.h"

#include "core/provenance.h"
#include "core/ranks.h"
#include "schedules/play.h"

namespace lockstep::program {
namespace {

using schedules::Breakdown;
using schedules::Lane;

std::int64_t exposed(const Breakdown& parts, Lane lane) {
  return parts.exposed_ps[static_cast<std::size_t>(lane)];
}

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> named_parts(const Breakdown& parts) {
  return {{"forward", parts.forward_ps},
          {"backward", parts.backward_ps},
          {"recompute", parts.recompute_ps},
          {"optimizer", parts.optimizer_ps},
          {"exposed_tensor", exposed(parts, Lane::tensor)},
          {"exposed_pipeline", exposed(parts, Lane::send) + exposed(parts, Lane::receive)},
          {"exposed_gather", exposed(parts, Lane::gather)},
          {"exposed_reduce", parts.exposed_reductions_ps()},
          {"exposed_copy", exposed(parts, Lane::copy) + exposed(parts, Lane::load) + exposed(parts, Lane::host)},
          {"bubble", parts.bubble_ps},
          {"between", parts.between_ps}};
}

std::vector<std::pair<std::string, double>> mean_parts_ms(const std::vector<Breakdown>& ranks) {
  std::vector<std::pair<std::string, double>> mean;
  for (const Breakdown& rank : ranks) {
    const auto parts = named_parts(rank);
    mean.resize(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      mean[i].first = parts[i].first;
      mean[i].second += static_cast<double>(parts[i].second) / 1e9 / static_cast<double>(ranks.size());
    }
  }
  return mean;
}

namespace {

double ms_of(std::int64_t ps) {
  return static_cast<double>(ps) / 1e9;
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

core::ScheduleRecord replicas_record(const core::RunRecord& run, std::int32_t replicas, std::int32_t microbatches,
                                     double step_ms, double kernels_ms) {
  core::ScheduleRecord record;
  record.run = run.run;
  record.program = run.program;
  record.ranks = record.pipes = replicas;
  record.microbatches = microbatches;
  record.basis = run.basis;
  record.makespan_ms = record.own_span_ms = step_ms;
  record.own_span_ms_of_rank.assign(static_cast<std::size_t>(replicas), step_ms);
  record.work_ms = kernels_ms;
  const schedules::Bubbles bubbles = schedules::bubbles_of({.makespan = step_ms, .own = step_ms, .work = kernels_ms});
  record.bubbles = {bubbles.of_ideal, bubbles.of_makespan, bubbles.of_own_span, bubbles.own_of_ideal};
  record.sends.assign(static_cast<std::size_t>(replicas), 0);
  return record;
}

core::StepRecord new_step_record(const core::RunRecord& run, const std::string& part, int ranks, int threads,
                                 core::DType dtype) {
  return {.run = run.run,
          .program = run.program,
          .basis = run.basis,
          .part = part,
          .ranks = ranks,
          .threads = threads,
          .dtype = std::string(core::short_name_of(dtype))};
}

void add_group(const std::string& group, const core::NamedNumbers& numbers, core::NamedNumbers& to) {
  const std::string prefix = group + ".";
  for (const auto& [name, value] : numbers) to.emplace_back(prefix + name, value);
}

void set_error(const std::string& wrong, core::StepRecord& record) {
  if (wrong.empty()) return;
  record.status = "wrong";
  record.error = wrong;
}

core::RunRecord new_run_record(const Invocation& flags, const std::string& basis, int ranks) {
  core::RunRecord run = core::new_run(flags.program, flags.command);
  run.ranks = ranks;
  run.oversubscribed = basis != "simulated" && ranks > core::usable_cores();
  run.basis = basis;
  return run;
}

core::RunRecord real_run_record(const Invocation& flags, int ranks, int threads, std::uint64_t seed,
                                const std::optional<transports::LinkSpec>& link) {
  core::RunRecord run = new_run_record(flags, "measured", ranks * threads);
  run.ranks = ranks;
  run.seed = seed;
  if (!link) return run;
  run.basis = "emulated";
  run.link = link_record(*link);
  return run;
}

}  // namespace lockstep::program
