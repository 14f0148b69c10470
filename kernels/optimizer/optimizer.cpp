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
#ifndef LOCKSTEP_KERNELS_OPTIMIZER_ADAMW_COEFFICIENTS
#define LOCKSTEP_KERNELS_OPTIMIZER_ADAMW_COEFFICIENTS
namespace lockstep::kernels {
namespace {

// Coefficients that an AdamW step on the CPU computes once from its arguments, so that each parameter costs only one
// division. With the corrections c1 = 1 - beta1^step and c2 = 1 - beta2^step:
//   rate * (m / c1) / (sqrt(v / c2) + epsilon) = (rate / c1) * m / (sqrt(v) * (1 / sqrt(c2)) + epsilon).
struct AdamWCoefficients {
  float factor;  // applied to gradients
  float beta1;
  float fresh1;  // 1 - beta1
  float beta2;
  float fresh2;      // 1 - beta2
  float rate;        // rate / c1
  float root_scale;  // 1 / sqrt(c2)
  float epsilon;
  float decay;  // rate * decay
};

struct AdamWArrays {
  float* w;
  float* m;
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

struct AdamWVectors {
  VF32 w;
  VF32 m;
  VF32 v;
};

// Multiplications and additions are fused explicitly, so that whole vectors and tails round alike.
HWY_INLINE AdamWVectors stepped(AdamWVectors old, VF32 grad, const AdamWCoefficients& c) {
  const F32 d;
  const VF32 g = hn::Mul(grad, hn::Set(d, c.factor));
  const VF32 m = hn::MulAdd(hn::Set(d, c.beta1), old.m, hn::Mul(hn::Set(d, c.fresh1), g));
  const VF32 v = hn::MulAdd(hn::Set(d, c.beta2), old.v, hn::Mul(hn::Mul(hn::Set(d, c.fresh2), g), g));
  const VF32 below = hn::MulAdd(hn::Sqrt(v), hn::Set(d, c.root_scale), hn::Set(d, c.epsilon));
  const VF32 update = hn::Div(hn::Mul(m, hn::Set(d, c.rate)), below);
  return {hn::Sub(old.w, hn::MulAdd(hn::Set(d, c.decay), old.w, update)), m, v};
}

template <class Grad, class Copy>
void step_range(const AdamWCoefficients& c, const Grad* grad, const Copy& copy, const AdamWArrays& a,
                std::size_t count) {
  const std::size_t lanes = lanes_f32();
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    prefetch_ahead(grad + i, lanes * sizeof(Grad));
    prefetch_ahead(a.w + i, lanes * sizeof(float));
    prefetch_ahead(a.m + i, lanes * sizeof(float));
    prefetch_ahead(a.v + i, lanes * sizeof(float));
    const AdamWVectors now = stepped({load(a.w + i), load(a.m + i), load(a.v + i)}, load(grad + i), c);
    store(now.w, a.w + i);
    store(now.m, a.m + i);
    store(now.v, a.v + i);
    copy.store_at(i, now.w);
  }
  const std::size_t left = count - i;
  if (left == 0) return;
  const AdamWVectors old{load_tail(a.w + i, left), load_tail(a.m + i, left), load_tail(a.v + i, left)};
  const AdamWVectors now = stepped(old, load_tail(grad + i, left), c);
  store_tail(now.w, a.w + i, left);
  store_tail(now.m, a.m + i, left);
  store_tail(now.v, a.v + i, left);
  copy.store_tail_at(i, now.w, left);
}

void adamw_step(const AdamW& args, const AdamWCoefficients& c, std::int64_t begin, std::int64_t end) {
  const AdamWArrays arrays{args.master.as<float>() + begin, args.m.as<float>() + begin, args.v.as<float>() + begin};
  with_gradient_and_copy(args, begin, [&](const auto* grad, const auto& copy) {
    step_range(c, grad, copy, arrays, static_cast<std::size_t>(end - begin));
  });
}

struct SgdVectors {
  VF32 w;
  VF32 momentum;
};

// Multiplications and additions are fused explicitly, so that whole vectors and tails round alike.
HWY_INLINE SgdVectors stepped(SgdVectors old, VF32 grad, VF32 factor, const SgdMomentum& args) {
  const F32 d;
  const VF32 kept = hn::Mul(hn::Set(d, args.mu), old.momentum);
  const VF32 with_decay = hn::MulAdd(hn::Set(d, args.decay), old.w, kept);
  const VF32 momentum = hn::MulAdd(grad, factor, with_decay);
  return {hn::NegMulAdd(hn::Set(d, args.rate), momentum, old.w), momentum};
}

template <class Grad, class Copy>
void step_range(const SgdMomentum& args, const Grad* grad, const Copy& copy, float* w, float* momentum,
                std::size_t count) {
  const VF32 factor = hn::Set(F32(), args.grad_scale * args.clip.as<float>()[0]);
  const std::size_t lanes = lanes_f32();
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    prefetch_ahead(grad + i, lanes * sizeof(Grad));
    prefetch_ahead(w + i, lanes * sizeof(float));
    prefetch_ahead(momentum + i, lanes * sizeof(float));
    const SgdVectors now = stepped({load(w + i), load(momentum + i)}, load(grad + i), factor, args);
    store(now.w, w + i);
    store(now.momentum, momentum + i);
    copy.store_at(i, now.w);
  }
  const std::size_t left = count - i;
  if (left == 0) return;
  const SgdVectors old{load_tail(w + i, left), load_tail(momentum + i, left)};
  const SgdVectors now = stepped(old, load_tail(grad + i, left), factor, args);
  store_tail(now.w, w + i, left);
  store_tail(now.momentum, momentum + i, left);
  copy.store_tail_at(i, now.w, left);
}

void sgd_step(const SgdMomentum& args, std::int64_t begin, std::int64_t end) {
  with_gradient_and_copy(args, begin, [&](const auto* grad, const auto& copy) {
    step_range(args, grad, copy, args.master.as<float>() + begin, args.momentum.as<float>() + begin,
               static_cast<std::size_t>(end - begin));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(adamw_step);
HWY_EXPORT(sgd_step);
constexpr std::int64_t kGrain = 1024;  // elements

AdamWCoefficients coefficients_of(const AdamW& args) {
  const auto steps = static_cast<double>(args.step);
  double correction1 = 1 - std::pow(static_cast<double>(args.beta1), steps);
  double correction2 = 1 - std::pow(static_cast<double>(args.beta2), steps);
  auto rate = static_cast<double>(args.rate);
  if (args.scheduled) {
    const auto* const schedule = args.schedule.as<float>();
    rate = static_cast<double>(schedule[0]);
    correction1 = static_cast<double>(schedule[1]);
    correction2 = static_cast<double>(schedule[2]);
  }
  return {.factor = args.grad_scale * args.clip.as<float>()[0],
          .beta1 = args.beta1,
          .fresh1 = static_cast<float>(1 - static_cast<double>(args.beta1)),
          .beta2 = args.beta2,
          .fresh2 = static_cast<float>(1 - static_cast<double>(args.beta2)),
          .rate = static_cast<float>(rate / correction1),
          .root_scale = static_cast<float>(1 / std::sqrt(correction2)),
          .epsilon = args.epsilon,
          .decay = static_cast<float>(rate * static_cast<double>(args.decay))};
}

}  // namespace

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

void run_cpu(const AdamW& args, ThreadPool& pool) {
  if (!(args.clip.as<float>()[0] > 0)) return;
  const AdamWCoefficients c = coefficients_of(args);
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(adamw_step)(args, c, begin, end);
  });
}

void run_cpu(const SgdMomentum& args, ThreadPool& pool) {
  if (!(args.clip.as<float>()[0] > 0)) return;
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(sgd_step)(args, begin, end); });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
