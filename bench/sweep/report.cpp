#include "bench/sweep/report.h"

#include <algorithm>
#include <span>

#include "core/statistics.h"

namespace lockstep::sweep {
namespace {

Measured measured_of(const RowResult& result, const SweepFlags& flags) {
  Measured measured;
  measured.time_us = flags.device.report_cpu_time ? result.queued_us : result.time_us;
  measured.algbw_gbps = result.algbw_gbps;
  measured.busbw_gbps = result.busbw_gbps;
  measured.wrong = result.wrong;
  const std::span<const double> samples(result.samples_us);
  if (samples.empty()) return measured;
  const auto skip = std::min(static_cast<std::size_t>(flags.per_iteration_skip), samples.size() - 1);
  const core::Summary summary = core::summarize(samples.subspan(skip));
  measured.min_us = summary.min;
  measured.max_us = summary.max;
  measured.p50_us = summary.median;
  measured.p95_us = summary.p95;
  measured.p99_us = summary.p99;
  measured.cv_percent = summary.mean > 0 ? 100 * summary.stddev / summary.mean : 0;
  if (result.plan && result.plan->predicted_us && *result.plan->predicted_us > 0) {
    measured.measured_over_predicted = measured.p50_us / *result.plan->predicted_us;
  }
  return measured;
}

Row row_of(const collectives::Operation& operation, const backends::Backend& backend, const std::string& algorithm,
           int num_ranks) {
  Row row;
  row.bytes = row_bytes(operation, num_ranks);
  row.count = operation.count;
  row.type = core::name_of(operation.dtype);
  row.op = collectives::has_op(operation.kind) ? core::name_of(operation.op) : "none";
  row.root = collectives::has_root(operation.kind) ? operation.root : -1;
  row.ranks = num_ranks;
  row.transport = backend.name;
  row.algorithm = algorithm;
  row.timestamp = timestamp_now();
  return row;
}

}  // namespace

Row table_row(const Comparison& comparison, const SweepFlags& flags, int num_ranks) {
  const RowResult& result = comparison.out_of_place;
  Row row = row_of(result.operation, *comparison.backend, result.algorithm, num_ranks);
  row.out_of_place = measured_of(result, flags);
  row.in_place = measured_of(comparison.in_place.value_or(RowResult{}), flags);
  if (result.plan) {
    row.steps = result.plan->steps;
    row.wire_bytes = result.plan->wire_bytes_max;
    row.predicted_us = result.plan->predicted_us;
    row.links_us = result.plan->links_us;
    row.memory_us = result.plan->memory_us;
  }
  return row;
}

Row failed_row(const collectives::Operation& operation, const Contender& contender, int num_ranks) {
  Row row = row_of(operation, *contender.backend, contender.algorithm, num_ranks);
  row.out_of_place.failed = true;
  row.in_place.failed = true;
  return row;
}

Columns columns_of(const SessionPlan& session) {
  const SweepFlags& flags = session.flags;
  return {.per_iteration = flags.per_iteration_timing,
          .timestamps = flags.timestamps,
          .cpu_time = flags.device.report_cpu_time,
          .choice = true,
          .transport = session.backends.size() > 1,
          .explain = flags.explain,
          .links = flags.explain && !flags.link.empty(),
          .stats = flags.stats};
}

}  // namespace lockstep::sweep
