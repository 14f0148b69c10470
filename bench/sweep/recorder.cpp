#include "bench/sweep/recorder.h"

#include "collectives/transports/paced_link.h"

namespace lockstep::sweep {

void Recorder::begin_run(const SweepFlags& flags, const RunFacts& facts) {
  run_ = {};
  run_.run = core::new_run_id();
  run_.program = flags.program;
  run_.command = flags.command;
  run_.started = core::utc_now();
  run_.source = core::source();
  run_.build = core::build();
  run_.machine = facts.machine;
  run_.libraries = facts.libraries;
  run_.gpu = facts.gpu;
  run_.ranks = facts.num_ranks;
  run_.transport = facts.transport;
  executor_ = facts.executor;
  run_.rank_kind = facts.rank_kind;
  run_.oversubscribed = facts.oversubscribed;
  run_.seed = flags.seed;
  if (!flags.link.empty()) {
    const transports::LinkSpec link = transports::parse_link(flags.link);
    run_.link = core::LinkRecord{link.latency_us, link.gbps > 0 ? std::optional(link.gbps) : std::nullopt};
    run_.basis = "emulated";
  }
  writer_.write(run_);
}

core::RowRecord Recorder::row_of(const collectives::Operation& operation) const {
  core::RowRecord record;
  record.run = run_.run;
  record.collective = collectives::name_of(operation.kind);
  record.transport = run_.transport;
  record.ranks = run_.ranks;
  record.bytes = row_bytes(operation, run_.ranks);
  record.count = operation.count;
  record.dtype = core::name_of(operation.dtype);
  if (collectives::has_op(operation.kind)) record.op = core::name_of(operation.op);
  if (collectives::has_root(operation.kind)) record.root = operation.root;
  record.in_place = operation.in_place;
  record.basis = run_.basis;
  return record;
}

void Recorder::add_result(const RowResult& result) {
  core::RowRecord record = row_of(result.operation);
  record.algorithm = result.algorithm;
  record.executor = result.executor;
  record.status = result.wrong.value_or(0) == 0 ? "ok" : "wrong";
  record.wrong = result.wrong;
  record.iterations = result.timed_calls;
  record.time_us = result.time_us;
  if (run_.gpu) record.queued_us = result.queued_us;
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
  add_result(comparison.out_of_place);
  if (comparison.in_place) add_result(*comparison.in_place);
}

void Recorder::add_failure(const collectives::Operation& operation, const std::string& algorithm,
                           const std::string& error) {
  core::RowRecord record = row_of(operation);
  record.algorithm = algorithm;
  record.executor = backends::asks_library(algorithm) ? "library" : executor_;
  record.status = "failed";
  record.error = error;
  writer_.write(record);
}

}  // namespace lockstep::sweep
