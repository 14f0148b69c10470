#include "bench/parallel/ddp_records.h"

#include <algorithm>
#include <string>

#include "bench/pipeline/records.h"
#include "bench/place/place.h"
#include "core/record.h"
#include "schedules/count.h"
#include "schedules/step/breakdown.h"

namespace lockstep::parallel_bench {
namespace {

core::RunRecord run_of(const DdpFlags& flags, const DdpCase& one) {
  const trainer::TrainOptions& options = flags.step.options;
  core::RunRecord run = pipeline::new_run_record(flags.step.program, flags.step.command, pipeline::Mode::emulated,
                                                 one.replicas * options.threads);
  run.ranks = one.replicas;
  run.seed = options.seed;
  run.basis = one.link ? "emulated" : "measured";
  program::add_place(options.device, options.mpi, one.replicas, run);
  if (one.link) run.link = program::link_record(*one.link);
  return run;
}

core::ReductionsRecord reductions_of(const DdpCase& one, const DdpResult& result) {
  core::ReductionsRecord reductions;
  reductions.compression = text_of(one.compression);
  reductions.backward_ms = result.backward_ms();
  reductions.one_by_one_ms = result.one_by_one_ms();
  reductions.exposed_ms = result.exposed_ms();
  reductions.exposed_samples_ms = result.exposed_samples_ms();
  reductions.sent_bytes = result.sent_bytes;
  reductions.formula_bytes = result.formula_bytes;
  reductions.wrong = result.wrong;
  reductions.relative_error = result.relative_error;
  reductions.status = result.is_right() ? "ok" : "wrong";
  return reductions;
}

core::OverlapRecord overlap_of(const DdpFlags& flags, const DdpCase& one, const DdpResult& result) {
  const trainer::TrainOptions& options = flags.step.options;
  core::OverlapRecord overlap;
  overlap.layers = static_cast<std::int32_t>(options.model.layers);
  overlap.bytes_a_layer = result.gradient_bytes / options.model.layers;
  overlap.replicas = one.replicas;
  overlap.bucket_cap_bytes = static_cast<std::int64_t>(one.bucket_cap_mb * (1 << 20));
  overlap.algorithm = options.algorithm;
  overlap.collectives = result.buckets;
  overlap.compute_alone_ms = result.compute_ms();
  overlap.communication_alone_ms = result.communication_ms();
  overlap.efficiency = result.efficiency();
  overlap.reductions = reductions_of(one, result);
  return overlap;
}

void add_times(core::ScheduleRecord& record, const DdpResult& result) {
  const schedules::Spans spans{.makespan = result.step_ms(), .own = result.step_ms(), .work = result.compute_ms()};
  const schedules::Bubbles bubbles = schedules::bubbles_of(spans);
  record.makespan_ms = record.own_span_ms = result.step_ms();
  record.own_span_ms_of_rank.assign(static_cast<std::size_t>(record.ranks), result.step_ms());
  record.work_ms = result.compute_ms();
  record.bubbles = {bubbles.of_ideal, bubbles.of_makespan, bubbles.of_own_span, bubbles.own_of_ideal};
  for (const auto& rank : schedules::breakdown_of(result.step, result.timeline)) {
    record.exposed_ms.push_back(static_cast<double>(rank.all_exposed_ps()) / 1e9);
  }
  record.samples_ms = result.turns.step_ms;
  record.closed_form_ms = core::ClosedFormRecord{result.predicted_ms(), "makespan"};
  record.timeline = pipeline::timeline_record(result.step, result.timeline);
}

}  // namespace

void write_ddp_records(core::RecordWriter& writer, const DdpFlags& flags, const DdpCase& one, const DdpResult& result) {
  const core::RunRecord run = run_of(flags, one);
  core::ScheduleRecord record;
  record.run = run.run;
  record.program = run.program;
  record.schedule = "ddp";
  record.source = "gradient buckets: Li et al. 2020 (arXiv:2006.15704)";
  record.ranks = one.replicas;
  record.microbatches = flags.step.options.layout.microbatches;
  record.pipes = one.replicas;
  record.basis = run.basis;
  add_times(record, result);
  record.sends.assign(static_cast<std::size_t>(one.replicas), 0);
  record.overlap = overlap_of(flags, one, result);
  record.energy = result.energy;
  writer.write(run);
  writer.write(record);
}

}  // namespace lockstep::parallel_bench
