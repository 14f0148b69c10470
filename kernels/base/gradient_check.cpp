#include "kernels/base/gradient_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/error.h"
#include "core/random.h"

namespace lockstep::kernels {
namespace {

using Data = ReferenceData<double>;
using Names = GradientCheck::Names;

// Numbers in [-1, 1] that depend only on index and seed.
std::vector<double> direction(std::size_t elems, std::uint64_t seed) {
  std::vector<double> values(elems);
  for (std::size_t i = 0; i < elems; ++i) {
    values[i] = static_cast<double>(core::hash64(seed, i) >> 11) * 0x1p-52 - 1;
  }
  return values;
}

double dot(std::span<const double> a, std::span<const double> b) {
  LOCKSTEP_CHECK(a.size() == b.size() && !a.empty(), "gradient check: an operand is missing or of another size");
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Returns the sum of outputs times their given gradients, for a forward whose input is moved along a direction.
double loss(const GradientCheck& check, const Data& inputs, Data& gradients, const std::string& moved,
            const std::vector<double>& along, double distance) {
  Data data = inputs;
  const auto input = data[moved];
  for (std::size_t i = 0; i < input.size(); ++i) input[i] += distance * along[i];
  check.forward.reference(data);
  double sum = 0;
  for (const Names& output : check.outputs) sum += dot(data[output.forward], gradients[output.backward]);
  return sum;
}

// Returns the backward's operands, including those that it shares with the forward.
Data backward_inputs(const GradientCheck& check, Data forward_results, std::uint64_t seed) {
  Data data = draw_inputs(check.backward, seed);
  std::vector<Names> shared = check.same;
  for (const CaseOperand& operand : check.backward.operands) {
    const bool renamed = std::any_of(check.same.begin(), check.same.end(),
                                     [&](const Names& names) { return names.backward == operand.name; });
    if (!renamed) shared.push_back({operand.name, operand.name});
  }
  for (const Names& names : shared) {
    const auto from = forward_results[names.forward];
    const auto to = data[names.backward];
    if (from.size() == to.size()) std::copy(from.begin(), from.end(), to.begin());
  }
  return data;
}

// Returns the finding about one input, or "".
std::string input_errors(const GradientCheck& check, const Data& inputs, Data& before, Data& after, const Names& names,
                         std::uint64_t seed) {
  std::vector<double> gradient(after[names.backward].begin(), after[names.backward].end());
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] -= before[names.backward][i];
  const std::vector<double> along = direction(gradient.size(), seed);
  const auto at = [&](double steps) { return loss(check, inputs, before, names.forward, along, steps * check.step); };
  // Abramowitz, Stegun 1964, 25.3.6: central differences over four points.
  const double measured = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * check.step);
  const double claimed = dot(gradient, along);
  double terms = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) terms += std::fabs(gradient[i] * along[i]);
  if (std::fabs(measured - claimed) <= check.tolerance * terms) return "";  // false for NaN
  return fmt::format("{}: {} says {:.9g}, finite differences of {} say {:.9g}\n", check.backward.name(), names.backward,
                     claimed, names.forward, measured);
}

}  // namespace

std::string gradient_errors(const GradientCheck& check, std::uint64_t seed) {
  const Data inputs = draw_inputs(check.forward, seed);
  Data results = inputs;
  check.forward.reference(results);
  Data before = backward_inputs(check, results, core::hash64(seed, 1));
  Data after = before;
  check.backward.reference(after);
  std::string text;
  for (const Names& names : check.inputs) {
    text += input_errors(check, inputs, before, after, names, core::hash64(seed, 2));
  }
  return text;
}

}  // namespace lockstep::kernels
