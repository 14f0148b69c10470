// What the plan says a row should cost: counts, and a prediction from alpha and beta measured in the same run.
#pragma once

#include "bench/sweep/result.h"
#include "collectives/plan/cost.h"

namespace lockstep::sweep {

// alpha and beta fitted to ring shifts of several sizes over the same endpoint: least squares of the relative error. Of
// each size the smallest sample counts, as whoever else computes on the machine only adds to others.
// Reductions are part of the pass that moves the bytes, so gamma stays 0.
plan::CostModel measure_cost_model(backends::Endpoint& endpoint, std::byte* pool, std::uint64_t& rounds,
                                   const TrialOptions& options);
// Memory that measure_cost_model needs.
std::size_t cost_model_pool_bytes(int num_ranks, const TrialOptions& options);

struct TimedSize {
  double bytes;
  double us;
};
// Minimises the sum of ((alpha + beta * bytes - us) / us)^2 over alpha, beta >= 0.
plan::CostModel fit_alpha_beta(const std::vector<TimedSize>& points);

// `model`: nullptr for counts alone.
PlanFacts facts_of(const plan::Plan& plan, const collectives::Operation& operation, const plan::CostModel* model);

}  // namespace lockstep::sweep
