#include "simulator/validation/fit.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

namespace lockstep::simulator {
namespace {

void scale(EfficiencyCurve& curve, double factor) {
  for (EfficiencyPoint& point : curve) point.share = std::min(1.0, point.share * factor);
}

// One case per run that the machine is fitted to, however many of its times are published: the split of a layer's time
// between forward and backward depends more on collectives than on products.
std::vector<double> errors_of(std::span<const ValidationCase> cases, const Machine& machine, double factor) {
  const Machine tried = scaled(machine, factor);
  std::map<std::string, std::vector<double>> of_runs;
  for (const ValidationCase& each : cases) {
    if (each.fitted) of_runs[each.model + " " + each.layout].push_back(validate(each, tried).error());
  }
  std::vector<double> errors;
  for (const auto& [run, of_run] : of_runs) {
    errors.push_back(std::accumulate(of_run.begin(), of_run.end(), 0.0) / static_cast<double>(of_run.size()));
  }
  return errors;
}

// One Gauss-Newton step: least squares of errors + slopes x change.
double improved(std::span<const ValidationCase> cases, const Machine& machine, double at) {
  constexpr double kStep = 1e-3;
  const std::vector<double> here = errors_of(cases, machine, at);
  const std::vector<double> beside = errors_of(cases, machine, at + kStep);
  double squares = 0;
  double products = 0;
  for (std::size_t i = 0; i < here.size(); ++i) {
    const double slope = (beside[i] - here[i]) / kStep;
    squares += slope * slope;
    products += slope * here[i];
  }
  return squares > 0 ? at - products / squares : at;
}

}  // namespace

Machine scaled(Machine machine, double product_factor) {
  scale(machine.device.product, product_factor);
  scale(machine.device.attention, product_factor);
  return machine;
}

double fit_product_share(std::span<const ValidationCase> cases, const Machine& machine) {
  constexpr int kRounds = 8;
  double factor = 1;
  for (int round = 0; round < kRounds; ++round) factor = improved(cases, machine, factor);
  return factor;
}

}  // namespace lockstep::simulator
