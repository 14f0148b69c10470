// The outer optimizer of DiLoCo: SGD with Nesterov momentum on the mean change of the replicas' weights.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::trainer {

struct OuterRules {
  float rate = 0.7F;
  float momentum = 0.9F;
};

// With `change` = start - mean of the replicas' weights, the outer gradient (Douillard et al. 2023, arXiv:2311.08105,
// algorithm 1), and torch.optim.SGD's Nesterov:
//
//   velocity = momentum velocity + change;   weights = start - rate (change + momentum velocity);   start = weights
//
// `change_sum` is the sum over `replicas`. All spans are as long; `weights` may be `change_sum`.
void outer_step(const OuterRules& rules, std::int32_t replicas, std::span<const float> change_sum,
                std::span<float> start, std::span<float> velocity, std::span<float> weights);

}  // namespace lockstep::trainer
