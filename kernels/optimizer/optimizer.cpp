// Checks of the arguments of the family's kernels, and their costs.
#include "kernels/optimizer/optimizer.h"

#include <cmath>

#include "kernels/base/operands.h"

namespace lockstep::kernels {

void AdamW::check_shape() const {
  check_at_least(name(), "count", count, 1);
  check_at_least(name(), "step", step, 1);
  check_not_negative(name(), "rate", rate);
  check_fraction(name(), "beta1", beta1);
  check_fraction(name(), "beta2", beta2);
  check_not_negative(name(), "epsilon", epsilon);
  check_not_negative(name(), "decay", decay);
  check_finite(name(), "grad_scale", grad_scale);
}

void SgdMomentum::check_shape() const {
  check_at_least(name(), "count", count, 1);
  check_not_negative(name(), "rate", rate);
  check_fraction(name(), "mu", mu);
  check_not_negative(name(), "decay", decay);
  check_finite(name(), "grad_scale", grad_scale);
}

void ClipFactor::check_shape() const {
  check_at_least(name(), "shards", shards, 1);
  check_positive(name(), "most", most);
  check_not_negative(name(), "grad_scale", grad_scale);
}

std::array<float, kAdamWSchedule> adamw_schedule(float rate, float beta1, float beta2, std::int64_t step) {
  const auto steps = static_cast<double>(step);
  return {rate, static_cast<float>(1 - std::pow(static_cast<double>(beta1), steps)),
          static_cast<float>(1 - std::pow(static_cast<double>(beta2), steps))};
}

Cost cost_of(const AdamW& args) {
  return {17.0 * static_cast<double>(args.count) + 1, operand_bytes(args), ""};
}

Cost cost_of(const SgdMomentum& args) {
  return {7.0 * static_cast<double>(args.count) + 1, operand_bytes(args), ""};
}

Cost cost_of(const SumOfSquares& args) {
  return {2.0 * static_cast<double>(args.count), operand_bytes(args), ""};
}

Cost cost_of(const ClipFactor& args) {
  return {static_cast<double>(args.shards) + 3, operand_bytes(args), ""};
}

Cost cost_of(const FiniteCheck& args) {
  return {0, operand_bytes(args), ""};
}

}  // namespace lockstep::kernels
