#include "bench/scaling/records.h"

#include "bench/pipeline/records.h"
#include "bench/trainer/records.h"
#include "core/cores.h"

namespace lockstep::scaling {
namespace {

core::StepTimeRecord step_record(const char* kind, double step_ms, const core::NamedNumbers& parts,
                                 const schedules::Step& step, const schedules::StepTimeline& timeline) {
  return {.kind = kind,
          .step_ms = step_ms,
          .samples_ms = {step_ms},
          .parts_ms = parts,
          .timeline = pipeline::timeline_record(step, timeline)};
}

core::ScalingRecord record_without_steps(const core::RunRecord& run, const Result& result) {
  return {.run = run.run,
          .program = run.program,
          .basis = run.basis,
          .mode = name_of(result.mode),
          .model = mini_train::model_record(result.options),
          .layout = mini_train::layout_record(result.options.layout),
          .dtype = std::string(core::short_name_of(result.options.layout.compute)),
          .ranks = result.options.layout.ranks(),
          .threads = result.options.threads,
          .oversubscribed = result.oversubscribed,
          .sequences_a_step = result.options.layout.global_batch(),
          .tokens_a_step = result.options.tokens_a_step(),
          .steps = {},
          .tokens_per_s = result.tokens_per_s(),
          .efficiency = result.efficiency};
}

// With more tasks a record's timeline is too large to draw or to keep.
constexpr std::size_t kMostRanksKept = 16;

core::ScalingRecord simulated_record(const core::RunRecord& run, const Result& result) {
  core::ScalingRecord record = record_without_steps(run, result);
  const schedules::StepTimeline& timeline = result.times.isolated.timeline;
  record.steps = {step_record("isolated", result.isolated_ms(), result.isolated_parts, result.times.step,
                              timeline.size() <= kMostRanksKept ? timeline : schedules::StepTimeline{})};
  return record;
}

}  // namespace

core::RunRecord simulated_run(core::RunRecord run) {
  run.run = core::new_run_id();
  run.basis = "simulated";
  run.oversubscribed = false;
  return run;
}

core::RunRecord run_record(const ScalingFlags& flags, const trainer::TrainOptions& options, int most_ranks) {
  core::RunRecord run = pipeline::new_run_record(flags.program, flags.command, pipeline::Mode::simulated, most_ranks);
  run.basis = options.link ? "emulated" : "measured";
  run.oversubscribed = most_ranks * options.threads > core::usable_cores();
  program::add_place(options.device, options.mpi, most_ranks, run);
  run.seed = options.seed;
  if (options.link) run.link = program::link_record(*options.link);
  return run;
}

core::ScalingRecord scaling_record(const core::RunRecord& run, const Result& result) {
  if (result.simulated()) return simulated_record(run, result);
  const LayoutTimes& times = result.times;
  core::StepTimeRecord measured =
      step_record("measured", result.measured_ms, result.measured_parts, times.step, times.measured);
  measured.samples_ms = times.samples_ms;
  core::ScalingRecord record = record_without_steps(run, result);
  record.steps = {
      step_record("isolated", result.isolated_ms(), result.isolated_parts, times.step, times.isolated.timeline),
      step_record("contended", result.contended_ms(), result.contended_parts, times.step, times.contended.timeline),
      std::move(measured)};
  record.energy = times.energy;
  for (const SlowdownRow& row : rows_of(times.slowdowns, result.options.layout.ranks())) {
    record.slowdowns.push_back({row.of, row.beside, row.ranks, row.factor, static_cast<std::int64_t>(row.samples)});
  }
  return record;
}

}  // namespace lockstep::scaling
