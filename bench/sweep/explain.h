// Cost of a row by its plan: counts, and a prediction from alpha and beta measured in the same run.
#pragma once

#include "bench/sweep/result.h"
#include "collectives/plan/cost.h"

namespace lockstep::sweep {

// Fits alpha and beta to ring shifts of several sizes over the same endpoint, by least squares of the relative error.
// The smallest sample of each size counts, as other load on the machine only adds time. Reductions are part of the pass
// that moves the bytes, so gamma stays 0.
plan::CostModel measure_cost_model(backends::Endpoint& endpoint, std::byte* pool, std::uint64_t& rounds,
                                   const TrialOptions& options);
// Bytes of memory that measure_cost_model needs.
std::size_t cost_model_pool_bytes(int num_ranks, const TrialOptions& options);

struct TimedSize {
  double bytes;
  double us;
};
// Minimises the sum of ((alpha + beta * bytes - us) / us)^2 over alpha, beta >= 0.
plan::CostModel fit_alpha_beta(const std::vector<TimedSize>& points);

// `model` may be nullptr: counts only.
PlanFacts facts_of(const plan::Plan& plan, const collectives::Operation& operation, const plan::CostModel* model);

}  // namespace lockstep::sweep
