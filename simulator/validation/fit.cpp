#include "simulator/validation/fit.h"

#include <algorithm>

namespace lockstep::simulator {
namespace {

void scale(EfficiencyCurve& curve, double factor) {
  for (EfficiencyPoint& point : curve) point.share = std::min(1.0, point.share * factor);
}

std::vector<double> errors_of(std::span<const ValidationCase> cases, const Machine& machine,
                              const ShareFactors& factors) {
  const Machine tried = scaled(machine, factors);
  std::vector<double> errors;
  for (const ValidationCase& each : cases) {
    if (each.fitted && each.product_factor == 1) errors.push_back(validate(each, tried).error());
  }
  return errors;
}

// One step: solves the normal equations of errors + slopes x change = 0.
ShareFactors improved(std::span<const ValidationCase> cases, const Machine& machine, const ShareFactors& at) {
  constexpr double kStep = 1e-3;
  const std::vector<double> here = errors_of(cases, machine, at);
  const std::vector<double> product = errors_of(cases, machine, {at.product + kStep, at.memory});
  const std::vector<double> memory = errors_of(cases, machine, {at.product, at.memory + kStep});
  double pp = 0;
  double pm = 0;
  double mm = 0;
  double pe = 0;
  double me = 0;
  for (std::size_t i = 0; i < here.size(); ++i) {
    const double p = (product[i] - here[i]) / kStep;
    const double m = (memory[i] - here[i]) / kStep;
    pp += p * p;
    pm += p * m;
    mm += m * m;
    pe += p * here[i];
    me += m * here[i];
  }
  const double determinant = pp * mm - pm * pm;
  if (determinant <= 0) return at;
  return {at.product - (pe * mm - me * pm) / determinant, at.memory - (me * pp - pe * pm) / determinant};
}

}  // namespace

Machine scaled(Machine machine, const ShareFactors& factors) {
  scale(machine.device.product, factors.product);
  scale(machine.device.attention, factors.product);
  scale(machine.device.memory, factors.memory);
  return machine;
}

ShareFactors fit_shares(std::span<const ValidationCase> cases, const Machine& machine) {
  constexpr int kRounds = 8;
  ShareFactors factors;
  for (int round = 0; round < kRounds; ++round) factors = improved(cases, machine, factors);
  return factors;
}

}  // namespace lockstep::simulator
