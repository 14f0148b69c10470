#include "kernels/optimizer/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/sgd.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/optimizer/weights_copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

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

void step(const SgdMomentum& args, std::int64_t begin, std::int64_t end) {
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
HWY_EXPORT(step);
constexpr std::int64_t kGrain = 1024;  // elements
}  // namespace

void run_cpu(const SgdMomentum& args, ThreadPool& pool) {
  if (!(args.clip.as<float>()[0] > 0)) return;
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(step)(args, begin, end); });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
