#include "testing/kernels/kernel_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <fmt/format.h>
#include <hwy/highway.h>

#include "core/device.h"
#include "core/error.h"
#include "core/random.h"
#include "kernels/base/thread_pool.h"

namespace lockstep::kernels {

std::string determinism_errors(const KernelCase& kernel_case, std::uint64_t seed,
                               const std::vector<CaseRunner>& runners) {
  if (!kernel_case.deterministic) return "";
  std::vector<std::byte> first;
  const ReferenceData<double> inputs = inputs_for(runners.front().device, kernel_case, seed);
  for (std::size_t i = 0; i < runners.size(); ++i) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      CaseMemory memory(runners[i].device, kernel_case);
      memory.fill(inputs);
      kernel_case.run(memory.pointers(), runners[i].context);
      runners[i].wait();
      if (!runners[i].device.computes()) continue;
      const std::vector<std::byte> bytes = memory.bytes_of_outputs();
      if (i == 0 && repeat == 0) first = bytes;
      if (bytes != first) return fmt::format("{}: runner {}, run {} gives other bits\n", kernel_case.name(), i, repeat);
    }
  }
  return "";
}

std::string cost_errors(const KernelCase& kernel_case) {
  double bytes = 0;
  for (const CaseOperand& operand : kernel_case.operands) {
    bytes += static_cast<double>(operand.bytes()) * (operand.access == Access::update ? 2 : 1);
  }
  std::string text;
  if (bytes != kernel_case.cost.bytes && kernel_case.cost.bytes_reason.empty()) {
    text +=
        fmt::format("declares {} bytes; its operands have {}, and no reason is given\n", kernel_case.cost.bytes, bytes);
  }
  std::int64_t flops = 0;
  ReferenceData<Counted> counted;
  const ReferenceData<double> inputs = draw_inputs(kernel_case, 1);
  for (const auto& [name, values] : inputs.arrays()) {
    std::vector<Counted> numbers;
    for (double value : values) numbers.emplace_back(value, &flops);
    counted.add(name, std::move(numbers));
  }
  kernel_case.counted_reference(counted);
  if (static_cast<double>(flops) != kernel_case.cost.flops) {
    text += fmt::format("declares {} FLOPs; its reference does {}\n", kernel_case.cost.flops, flops);
  }
  return text.empty() ? "" : kernel_case.name() + ":\n" + text;
}

std::string cpu_errors(const KernelCase& kernel_case, std::uint64_t seed) {
  const auto device = core::make_cpu_device();
  ThreadPool pool1(1);
  ThreadPool pool2(2);
  ThreadPool pool3(3);
  for (ThreadPool* pool : {&pool2, &pool3})
    pool->kept<Caches>() = Caches::of_bytes(100);  // most operands are larger than this
  const std::array contexts{Context(pool1), Context(pool2), Context(pool3)};
  std::vector<CaseRunner> runners;
  for (const Context& context : contexts) runners.push_back({*device, context});
  std::string text = cost_errors(kernel_case);
  text += result_errors(kernel_case, seed, runners[0]);
  text += result_errors(kernel_case, seed + 1, runners[1], 1);
  text += result_errors(kernel_case, seed + 2, runners[2], 3);
  return text + determinism_errors(kernel_case, seed, runners);
}

std::string errors_on_each_target(const std::vector<KernelCase>& cases, std::int64_t most_elems) {
  std::string text;
  bool on_best = true;
  on_each_target([&](const std::string& target) {
    for (const KernelCase& kernel_case : cases) {
      const bool is_large = std::any_of(kernel_case.operands.begin(), kernel_case.operands.end(),
                                        [&](const CaseOperand& operand) { return operand.elems >= most_elems; });
      if (is_large && !on_best) continue;
      const std::string errors = cpu_errors(kernel_case);
      if (!errors.empty()) text.append(target).append(" ").append(errors);
    }
    on_best = false;
  });
  return text;
}

std::string usage_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const core::Error& error) {
    if (error.failure() != core::Failure::usage) throw;
    return error.what();
  }
  return "";
}

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

void on_each_target(const std::function<void(const std::string& name)>& check) {
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace lockstep::kernels
