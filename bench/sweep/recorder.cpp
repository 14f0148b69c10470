#include "bench/sweep/recorder.h"

#include <utility>

#include "collectives/transports/paced_link.h"

namespace lockstep::sweep {
namespace {

core::RowRecord row_of(const core::RunRecord& run, const collectives::Operation& operation) {
  core::RowRecord record;
  record.run = run.run;
  record.collective = collectives::name_of(operation.kind);
  record.transport = run.transport;
  record.ranks = run.ranks;
  record.bytes = row_bytes(operation, run.ranks);
  record.count = operation.count;
  record.dtype = core::name_of(operation.dtype);
  if (collectives::has_op(operation.kind)) record.op = core::name_of(operation.op);
  if (collectives::has_root(operation.kind)) record.root = operation.root;
  record.in_place = operation.in_place;
  record.basis = run.basis;
  return record;
}

}  // namespace

void Recorder::begin_run(const SweepFlags& flags, const RunFacts& facts) {
  core::RunRecord run;
  run.run = core::new_run_id();
  run.program = flags.program;
  run.command = flags.command;
  run.started = core::utc_now();
  run.source = core::source();
  run.build = core::build();
  run.machine = facts.machine;
  run.libraries = facts.libraries;
  run.gpu = facts.gpu;
  run.ranks = facts.num_ranks;
  run.transport = facts.transport;
  run.rank_kind = facts.rank_kind;
  run.oversubscribed = facts.oversubscribed;
  run.seed = flags.seed;
  if (!flags.link.empty()) {
    const transports::LinkSpec link = transports::parse_link(flags.link);
    run.link = core::LinkRecord{link.latency_us, link.gbps > 0 ? std::optional(link.gbps) : std::nullopt};
    run.basis = "emulated";
  }
  writer_.write(run);
  watch_.emplace(facts.gpu_devices);
  runs_.insert_or_assign(facts.transport, std::move(run));
}

void Recorder::add_result(const core::RunRecord& run, const RowResult& result) {
  core::RowRecord record = row_of(run, result.operation);
  record.algorithm = result.algorithm;
  record.executor = result.executor;
  record.status = result.wrong.value_or(0) == 0 ? "ok" : "wrong";
  record.wrong = result.wrong;
  record.gpu_states = watch_->now();
  record.iterations = result.timed_calls;
  record.time_us = result.time_us;
  if (run.gpu) record.queued_us = result.queued_us;
  record.graph_iterations = result.graph_iterations;
  record.algbw_gbps = result.algbw_gbps;
  record.busbw_gbps = result.busbw_gbps;
  record.samples_us = result.samples_us;
  if (result.plan) {
    record.plan = core::PlanRecord{result.plan->steps, result.plan->wire_bytes_max, result.plan->wire_bytes_total,
                                   result.plan->predicted_us};
  }
  writer_.write(record);
}

void Recorder::add(const Comparison& comparison) {
  const core::RunRecord& run = run_of(*comparison.backend);
  add_result(run, comparison.out_of_place);
  if (comparison.in_place) add_result(run, *comparison.in_place);
}

void Recorder::add_failure(const collectives::Operation& operation, const Contender& contender,
                           const std::string& error) {
  core::RowRecord record = row_of(run_of(*contender.backend), operation);
  record.algorithm = contender.algorithm;
  record.executor = backends::asks_library(contender.algorithm) ? "library" : contender.backend->executor;
  record.status = "failed";
  record.error = error;
  writer_.write(record);
}

}  // namespace lockstep::sweep
