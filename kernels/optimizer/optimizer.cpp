// Steps of optimizers on the CPU, the checks of the arguments of the family's kernels, and their costs.
#include "kernels/optimizer/optimizer.h"

#include <cmath>
#include <cstddef>

#include "kernels/base/operands.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/optimizer.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

// Shared by all targets, each of which includes this file.
#ifndef LOCKSTEP_KERNELS_OPTIMIZER_COEFFICIENTS
#define LOCKSTEP_KERNELS_OPTIMIZER_COEFFICIENTS
namespace lockstep::kernels {
namespace {

// Coefficients that a step on the CPU computes once from its arguments, so that each parameter costs only one division.
// With the corrections c1 and c2 (rules.h):
//   rate * (m / c1) / (sqrt(v / c2) + epsilon) = (rate / c1) * m / (sqrt(v) * (1 / sqrt(c2)) + epsilon).
struct StepCoefficients {
  float factor;  // applied to gradients
  float beta1;
  float fresh1;  // 1 - beta1
  float beta2;
  float fresh2;      // 1 - beta2
  float rate;        // rate / c1
  float root_scale;  // 1 / sqrt(c2)
  float epsilon;
  float decay;  // added to gradients; rate * decay if the rule decouples it
};

struct StepArrays {
  float* w;
  float* m;  // not read without a first moment, nor v without a second
  float* v;
};

}  // namespace
}  // namespace lockstep::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// The narrow copy of weights that a step may write.
struct NoCopy {
  HWY_INLINE void store_at(std::size_t /*i*/, VF32 /*w*/) const {}
  HWY_INLINE void store_tail_at(std::size_t /*i*/, VF32 /*w*/, std::size_t /*count*/) const {}
};

template <class T>
struct NarrowCopy {
  T* weights;
  HWY_INLINE void store_at(std::size_t i, VF32 w) const { store(w, weights + i); }
  HWY_INLINE void store_tail_at(std::size_t i, VF32 w, std::size_t count) const { store_tail(w, weights + i, count); }
};

// Calls visit(pointer to the gradients from `begin` on, functor that copies weights there) with their types.
template <class Args, class Visit>
void with_gradient_and_copy(const Args& args, std::int64_t begin, Visit&& visit) {
  with_activation_type(args.grad.dtype, [&](auto gradient) {
    const auto* grad = args.grad.template as<decltype(gradient)>() + begin;
    if (!args.narrow_weights) return visit(grad, NoCopy{});
    if (args.weights.dtype == core::DType::bf16) {
      return visit(grad, NarrowCopy<core::BFloat16>{args.weights.template as<core::BFloat16>() + begin});
    }
    visit(grad, NarrowCopy<core::Float16>{args.weights.template as<core::Float16>() + begin});
  });
}

struct StepVectors {
  VF32 w;
  VF32 m;
  VF32 v;
};

// Multiplications and additions are fused explicitly, so that whole vectors and tails round alike.
template <OptimizerKind kKind>
HWY_INLINE StepVectors stepped(StepVectors old, VF32 grad, const StepCoefficients& c) {
  constexpr OptimizerRule kRule = rule_of(kKind);
  const F32 d;
  VF32 g = hn::Mul(grad, hn::Set(d, c.factor));
  if constexpr (!kRule.decouples_decay) g = hn::MulAdd(hn::Set(d, c.decay), old.w, g);
  VF32 m = g;
  VF32 v = old.v;
  if constexpr (kRule.first_moment) {
    m = hn::MulAdd(hn::Set(d, c.beta1), old.m, kRule.corrects_bias ? hn::Mul(hn::Set(d, c.fresh1), g) : g);
  }
  VF32 update = hn::Mul(m, hn::Set(d, c.rate));
  if constexpr (kRule.second_moment) {
    v = hn::MulAdd(hn::Set(d, c.beta2), old.v, hn::Mul(hn::Mul(hn::Set(d, c.fresh2), g), g));
    update = hn::Div(update, hn::MulAdd(hn::Sqrt(v), hn::Set(d, c.root_scale), hn::Set(d, c.epsilon)));
  }
  if constexpr (kRule.decouples_decay) update = hn::MulAdd(hn::Set(d, c.decay), old.w, update);
  return {hn::Sub(old.w, update), m, v};
}

template <OptimizerKind kKind, class Grad, class Copy>
void step_range(const StepCoefficients& c, const Grad* grad, const Copy& copy, const StepArrays& a, std::size_t count) {
  constexpr bool kFirst = rule_of(kKind).first_moment;
  constexpr bool kSecond = rule_of(kKind).second_moment;
  const std::size_t lanes = lanes_f32();
  StepVectors old{hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    prefetch_ahead(grad + i, lanes * sizeof(Grad));
    prefetch_ahead(a.w + i, lanes * sizeof(float));
    if constexpr (kFirst) prefetch_ahead(a.m + i, lanes * sizeof(float));
    if constexpr (kSecond) prefetch_ahead(a.v + i, lanes * sizeof(float));
    old.w = load(a.w + i);
    if constexpr (kFirst) old.m = load(a.m + i);
    if constexpr (kSecond) old.v = load(a.v + i);
    const StepVectors now = stepped<kKind>(old, load(grad + i), c);
    store(now.w, a.w + i);
    if constexpr (kFirst) store(now.m, a.m + i);
    if constexpr (kSecond) store(now.v, a.v + i);
    copy.store_at(i, now.w);
  }
  const std::size_t left = count - i;
  if (left == 0) return;
  old.w = load_tail(a.w + i, left);
  if constexpr (kFirst) old.m = load_tail(a.m + i, left);
  if constexpr (kSecond) old.v = load_tail(a.v + i, left);
  const StepVectors now = stepped<kKind>(old, load_tail(grad + i, left), c);
  store_tail(now.w, a.w + i, left);
  if constexpr (kFirst) store_tail(now.m, a.m + i, left);
  if constexpr (kSecond) store_tail(now.v, a.v + i, left);
  copy.store_tail_at(i, now.w, left);
}

float* from(const InOut& view, std::int64_t begin) {
  return view.given() ? view.as<float>() + begin : nullptr;
}

void optimizer_step(const OptimizerStep& args, const StepCoefficients& c, std::int64_t begin, std::int64_t end) {
  const StepArrays arrays{from(args.master, begin), from(args.m, begin), from(args.v, begin)};
  with_optimizer(args.kind, [&](auto kind) {
    with_gradient_and_copy(args, begin, [&](const auto* grad, const auto& copy) {
      step_range<decltype(kind)::value>(c, grad, copy, arrays, static_cast<std::size_t>(end - begin));
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(optimizer_step);
constexpr std::int64_t kGrain = 1024;  // elements

StepCoefficients coefficients_of(const OptimizerStep& args) {
  const OptimizerNumbers& n = args.numbers;
  BiasCorrections corrections = bias_corrections(args.kind, n, args.step);
  double rate = n.rate;
  if (args.scheduled) {
    const auto* const schedule = args.schedule.as<float>();
    rate = static_cast<double>(schedule[0]);
    corrections = {static_cast<double>(schedule[1]), static_cast<double>(schedule[2])};
  }
  const double of_decay = rule_of(args.kind).decouples_decay ? rate : 1;
  return {.factor = args.grad_scale * args.clip.as<float>()[0],
          .beta1 = static_cast<float>(n.beta1),
          .fresh1 = static_cast<float>(1 - n.beta1),
          .beta2 = static_cast<float>(n.beta2),
          .fresh2 = static_cast<float>(1 - n.beta2),
          .rate = static_cast<float>(rate / corrections.first),
          .root_scale = static_cast<float>(1 / std::sqrt(corrections.second)),
          .epsilon = static_cast<float>(n.epsilon),
          .decay = static_cast<float>(of_decay * n.decay)};
}

}  // namespace

void OptimizerStep::check_shape() const {
  check_sizes(name(), {{"count", count}, {"step", step}});
  check_not_negative(name(), "rate", static_cast<float>(numbers.rate));
  check_fraction(name(), "beta1", static_cast<float>(numbers.beta1));
  check_fraction(name(), "beta2", static_cast<float>(numbers.beta2));
  check_not_negative(name(), "epsilon", static_cast<float>(numbers.epsilon));
  check_not_negative(name(), "decay", static_cast<float>(numbers.decay));
  check_finite(name(), "grad_scale", grad_scale);
}

void ClipFactor::check_shape() const {
  check_at_least(name(), "shards", shards, 1);
  check_positive(name(), "most", most);
  check_not_negative(name(), "grad_scale", grad_scale);
}

BiasCorrections bias_corrections(OptimizerKind kind, const OptimizerNumbers& numbers, std::int64_t step) {
  if (!rule_of(kind).corrects_bias) return {};
  const auto steps = static_cast<double>(step);
  return {1 - std::pow(numbers.beta1, steps), 1 - std::pow(numbers.beta2, steps)};
}

std::array<float, kOptimizerSchedule> optimizer_schedule(OptimizerKind kind, const OptimizerNumbers& numbers,
                                                         std::int64_t step) {
  const BiasCorrections corrections = bias_corrections(kind, numbers, step);
  return {static_cast<float>(numbers.rate), static_cast<float>(corrections.first),
          static_cast<float>(corrections.second)};
}

Cost cost_of(const OptimizerStep& args) {
  return cost_of_operands(rule_of(args.kind).flops * static_cast<double>(args.count) + 1, args);
}

Cost cost_of(const SumOfSquares& args) {
  return cost_of_operands(2.0 * static_cast<double>(args.count), args);
}

Cost cost_of(const ClipFactor& args) {
  return cost_of_operands(static_cast<double>(args.shards) + 3, args);
}

void run_cpu(const OptimizerStep& args, ThreadPool& pool) {
  if (!(args.clip.as<float>()[0] > 0)) return;
  const StepCoefficients c = coefficients_of(args);
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(optimizer_step)(args, c, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
