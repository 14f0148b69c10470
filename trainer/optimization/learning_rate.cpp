#include "trainer/optimization/learning_rate.h"

#include <cmath>
#include <numbers>

namespace lockstep::trainer {

double learning_rate(const LearningRate& rate, std::int64_t step) {
  if (step <= rate.warmup) return rate.peak * static_cast<double>(step) / static_cast<double>(rate.warmup);
  if (step >= rate.steps) return rate.floor;
  const double progress = static_cast<double>(step - rate.warmup) / static_cast<double>(rate.steps - rate.warmup);
  return rate.floor + (rate.peak - rate.floor) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

}  // namespace lockstep::trainer
