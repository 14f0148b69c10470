#include "bench/pipeline/overlap_records.h"

#include <algorithm>

#include "bench/pipeline/records.h"
#include "schedules/count.h"

namespace lockstep::pipeline {
namespace {

std::string source_of(const OverlapCase& one) {
  if (one.zero_stage == 0) return "gradient buckets: Li et al. 2020 (arXiv:2006.15704)";
  return "ZeRO: Rajbhandari et al. 2019 (arXiv:1910.02054)";
}

core::OverlapRecord overlap_of(const OverlapFlags& flags, const OverlapCase& one, const OverlapResult& result) {
  return {.layers = flags.layers,
          .bytes_a_layer = flags.bytes_a_layer,
          .replicas = one.replicas,
          .bucket_cap_bytes = static_cast<std::int64_t>(one.bucket_cap_mb * (1 << 20)),
          .zero_stage = one.zero_stage,
          .prefetch = flags.prefetch,
          .algorithm = flags.algorithm,
          .collectives = result.collectives,
          .compute_alone_ms = result.compute_ms,
          .communication_alone_ms = result.communication_ms,
          .efficiency = result.efficiency()};
}

// No rank has a bubble at its start: all begin together.
void add_times(core::ScheduleRecord& record, const OverlapResult& result) {
  const schedules::Spans spans{.makespan = result.step_ms, .own = result.step_ms, .work = result.compute_ms};
  const schedules::Bubbles bubbles = schedules::bubbles_of(spans);
  record.makespan_ms = record.own_span_ms = result.step_ms;
  record.own_span_ms_of_rank.assign(static_cast<std::size_t>(record.ranks), result.step_ms);
  record.work_ms = result.compute_ms;
  record.bubbles = {bubbles.of_ideal, bubbles.of_makespan, bubbles.of_own_span, bubbles.own_of_ideal};
  record.exposed_ms = result.exposed_of_rank_ms;
  record.samples_ms = {result.step_ms};
  if (!result.emulation) return;
  record.samples_ms = result.emulation->samples_ms;
  record.late_us = result.emulation->late_us;
  record.simulated_ms = result.simulated_ms;
}

}  // namespace

core::RunRecord overlap_run_record(const OverlapFlags& flags) {
  core::RunRecord run = new_run_record(flags.program, flags.command, flags.mode,
                                       *std::max_element(flags.replicas.begin(), flags.replicas.end()));
  run.link = core::LinkRecord{flags.link.latency_us, std::nullopt};
  if (flags.link.gbps > 0) run.link->gbps = flags.link.gbps;
  return run;
}

core::ScheduleRecord overlap_record(const core::RunRecord& run, const OverlapFlags& flags, const OverlapCase& one,
                                    const OverlapResult& result) {
  core::ScheduleRecord record;
  record.run = run.run;
  record.program = run.program;
  record.schedule = result.step.name;
  record.source = source_of(one);
  record.ranks = one.replicas;
  record.microbatches = flags.microbatches;
  record.pipes = one.replicas;
  record.basis = run.basis;
  add_times(record, result);
  record.sends.assign(static_cast<std::size_t>(one.replicas), 0);
  if (result.closed_form_ms) record.closed_form = core::ClosedFormRecord{*result.closed_form_ms, "makespan"};
  record.timeline = timeline_record(result.step, result.timeline);
  record.overlap = overlap_of(flags, one, result);
  return record;
}

}  // namespace lockstep::pipeline
