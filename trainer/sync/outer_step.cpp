#include "trainer/sync/outer_step.h"

#include <cstddef>

#include "core/error.h"

namespace lockstep::trainer {

void outer_step(const OuterRules& rules, std::int32_t replicas, std::span<const float> change_sum,
                std::span<float> start, std::span<float> velocity, std::span<float> weights) {
  const std::size_t count = weights.size();
  LOCKSTEP_CHECK(change_sum.size() == count && start.size() == count && velocity.size() == count,
                 "spans of one bucket");
  const float share = 1 / static_cast<float>(replicas);
  for (std::size_t i = 0; i < count; ++i) {
    const float change = change_sum[i] * share;
    velocity[i] = rules.momentum * velocity[i] + change;
    weights[i] = start[i] -= rules.rate * (change + rules.momentum * velocity[i]);
  }
}

}  // namespace lockstep::trainer
