// The narrow copy of weights that an optimizer step may write, for sources that use Highway: included once per target.
#if defined(LOCKSTEP_KERNELS_OPTIMIZER_WEIGHTS_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_OPTIMIZER_WEIGHTS_COPY_INL_H_
#undef LOCKSTEP_KERNELS_OPTIMIZER_WEIGHTS_COPY_INL_H_
#else
#define LOCKSTEP_KERNELS_OPTIMIZER_WEIGHTS_COPY_INL_H_
#endif

#include <cstddef>

#include "kernels/base/vector_convert-inl.h"
#include "kernels/base/view.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

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

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
