#include "bench/sweep/result.h"

#include <algorithm>
#include <numeric>

namespace lockstep::sweep {
namespace {

double over_threads(const std::vector<double>& times, TimeOf time_of) {
  switch (time_of) {
    case TimeOf::rank0:
      return times.front();
    case TimeOf::mean:
      return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    case TimeOf::min:
      return *std::min_element(times.begin(), times.end());
    case TimeOf::max:
      return *std::max_element(times.begin(), times.end());
  }
  return 0;
}

// [sample] time of the slowest rank.
std::vector<double> slowest(transports::World& world, const std::vector<double>& mine) {
  const auto ranks = static_cast<std::size_t>(world.num_ranks());
  std::vector<double> all(mine.size() * ranks);
  world.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::vector<double> result = mine;
  for (std::size_t i = 0; i < all.size(); ++i) result[i % mine.size()] = std::max(result[i % mine.size()], all[i]);
  return result;
}

}  // namespace

double time_by(const TimeRule& rule, const std::vector<double>& time_of_rank) {
  const auto gpus = static_cast<std::ptrdiff_t>(rule.gpus_a_thread);
  std::vector<double> of_threads;
  for (auto first = time_of_rank.begin(); first != time_of_rank.end(); first += gpus) {
    of_threads.push_back(*std::max_element(first, first + gpus));
  }
  return over_threads(of_threads, rule.time_of);
}

std::int64_t row_bytes(const collectives::Operation& operation, int num_ranks) {
  if (operation.matrix == nullptr) {
    return collectives::message_bytes(operation.kind, num_ranks, operation.count, operation.dtype);
  }
  std::int64_t busiest = 0;
  for (int r = 0; r < num_ranks; ++r) {
    busiest = std::max({busiest, collectives::input_bytes(operation, num_ranks, r),
                        collectives::output_bytes(operation, num_ranks, r)});
  }
  return busiest;
}

RowResult combine(transports::World& world, const collectives::Operation& operation, const Trial& trial,
                  const TimeRule& rule, bool checked) {
  const TrialData& mine = trial.measured();
  RowResult result;
  result.operation = operation;
  result.bytes = row_bytes(operation, world.num_ranks());
  result.algorithm = trial.prepared().algorithm;
  result.executor = trial.prepared().executor;
  result.samples_us = slowest(world, mine.samples_us);
  result.timed_calls = mine.timed_calls;
  result.graph_iterations = trial.is_graph() ? trial.iterations_per_sample() : 0;
  const auto samples = static_cast<double>(std::max<std::size_t>(mine.samples_us.size(), 1));
  result.time_us = time_by(rule, transports::all_gather_value(world, mine.total_us / samples));
  result.queued_us = time_by(rule, transports::all_gather_value(world, mine.queued_us / samples));
  if (checked) {
    const auto wrong = transports::all_gather_value(world, mine.wrong);
    result.wrong = std::accumulate(wrong.begin(), wrong.end(), std::int64_t{0});
  }
  set_bandwidths(result, world.num_ranks());
  return result;
}

void set_bandwidths(RowResult& result, int num_ranks) {
  const collectives::Kind kind = result.operation.kind;
  result.algbw_gbps = collectives::algorithm_bandwidth_gbps(kind, num_ranks, result.bytes, result.time_us);
  result.busbw_gbps = result.algbw_gbps * collectives::bus_bandwidth_factor(kind, num_ranks);
}

}  // namespace lockstep::sweep
