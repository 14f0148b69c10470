#include "bench/sweep/explain.h"

#include <algorithm>
#include <array>
#include <map>

#include "collectives/plan/check.h"
#include "collectives/plan/count.h"

namespace lockstep::sweep {
namespace {

constexpr std::array<std::int64_t, 7> kShiftBytes{64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};

collectives::Operation ring_shift(std::int64_t size_bytes) {
  collectives::Operation operation;
  operation.kind = collectives::Kind::send_recv;
  operation.count = size_bytes / static_cast<std::int64_t>(core::size_of(operation.dtype));
  return operation;
}

}  // namespace

std::size_t cost_model_pool_bytes(int num_ranks, const TrialOptions& options) {
  std::size_t most = 0;
  for (std::int64_t bytes : kShiftBytes) most = std::max(most, pool_bytes(ring_shift(bytes), num_ranks, options));
  return most;
}

plan::CostModel fit_alpha_beta(const std::vector<TimedSize>& points) {
  // Normal equations of the weighted problem, weights 1 / us^2.
  double w = 0;
  double wx = 0;
  double wxx = 0;
  double wy = 0;
  double wxy = 0;
  for (const TimedSize& p : points) {
    const double weight = 1 / (p.us * p.us);
    w += weight;
    wx += weight * p.bytes;
    wxx += weight * p.bytes * p.bytes;
    wy += weight * p.us;
    wxy += weight * p.bytes * p.us;
  }
  const double determinant = w * wxx - wx * wx;
  plan::CostModel model;
  if (points.size() < 2 || determinant <= 0) {
    model.alpha_us = w > 0 ? wy / w : 0;
    return model;
  }
  model.alpha_us = (wxx * wy - wx * wxy) / determinant;
  model.beta_us_per_byte = (w * wxy - wx * wy) / determinant;
  if (model.alpha_us < 0) model = {0, wxy / wxx, 0, 0};
  if (model.beta_us_per_byte < 0) model = {wy / w, 0, 0, 0};
  return model;
}

plan::CostModel measure_cost_model(backends::Endpoint& endpoint, std::byte* pool, std::uint64_t& rounds,
                                   const TrialOptions& options) {
  constexpr int kRounds = 3;
  constexpr int kSamples = 8;
  std::map<std::int64_t, double> best_us;  // by size in bytes
  for (int round = 0; round < kRounds; ++round) {
    for (std::int64_t bytes : kShiftBytes) {
      const collectives::Operation operation = ring_shift(bytes);
      Trial trial(endpoint, operation, endpoint.prepare(operation, "direct"), pool, rounds, options);
      trial.warm_up(2);
      while (trial.measured().samples_us.size() < kSamples) {
        trial.run_batch(kSamples - static_cast<int>(trial.measured().samples_us.size()));
      }
      const auto samples_us = combine(endpoint.world, operation, trial, {}, false).samples_us;
      const double us = std::max(*std::min_element(samples_us.begin(), samples_us.end()), 1e-3);
      const auto known = best_us.try_emplace(bytes, us).first;
      known->second = std::min(known->second, us);
    }
  }
  std::vector<TimedSize> points;
  for (const auto& [bytes, us] : best_us) points.push_back({static_cast<double>(bytes), us});
  return fit_alpha_beta(points);
}

PlanFacts facts_of(const plan::Plan& plan, const collectives::Operation& operation, const plan::CostModel* model) {
  const plan::Contents contents = plan::contents_of(plan, {.capacity = plan::kUnbounded});
  const plan::Counts counts = plan::count(plan, contents, operation);
  PlanFacts facts{counts.steps, counts.busiest().bytes_sent, 0};
  for (const plan::RankCounts& rank : counts.ranks) facts.wire_bytes_total += rank.bytes_sent;
  if (model) facts.predicted_us = plan::predict(plan, contents, operation, *model).time_us;
  return facts;
}

}  // namespace lockstep::sweep
