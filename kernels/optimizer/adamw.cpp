#include <cmath>

#include "kernels/optimizer/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/adamw.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/optimizer/adamw_coefficients.h"
#include "kernels/optimizer/weights_copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

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

void step(const AdamW& args, const AdamWCoefficients& c, std::int64_t begin, std::int64_t end) {
  const AdamWArrays arrays{args.master.as<float>() + begin, args.m.as<float>() + begin, args.v.as<float>() + begin};
  with_gradient_and_copy(args, begin, [&](const auto* grad, const auto& copy) {
    step_range(c, grad, copy, arrays, static_cast<std::size_t>(end - begin));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(step);
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

void run_cpu(const AdamW& args, ThreadPool& pool) {
  if (!(args.clip.as<float>()[0] > 0)) return;
  const AdamWCoefficients c = coefficients_of(args);
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(step)(args, c, begin, end); });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
