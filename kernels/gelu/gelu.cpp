#include "kernels/gelu/gelu.h"

#include <type_traits>

#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu/gelu.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_map-inl.h"
#include "kernels/gelu/gelu_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
constexpr bool kRough = std::is_same_v<T, core::BFloat16>;

template <class T>
struct Gelu {
  static constexpr bool kTiesAreRare = true;
  HWY_INLINE VF32 operator()(VF32 x) const { return gelu<kRough<T>>(x); }
};
template <class T>
struct GeluGradient {
  static constexpr bool kTiesAreRare = true;
  HWY_INLINE VF32 operator()(VF32 x, VF32 dy) const { return hn::Mul(dy, gelu_slope<kRough<T>>(x)); }
};

void forward(const GeluForward& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<std::size_t>(end - begin);
    map_elems(Gelu<T>(), stream, count, args.y.as<T>() + begin, args.x.as<T>() + begin);
  });
}

void backward(const GeluBackward& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<std::size_t>(end - begin);
    map_elems(GeluGradient<T>(), stream, count, args.dx.as<T>() + begin, args.x.as<T>() + begin,
              args.dy.as<T>() + begin);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(forward);
HWY_EXPORT(backward);
constexpr std::int64_t kGrain = 1024;  // elements
}  // namespace

Cost cost_of(const GeluForward& args) {
  return {9.0 * static_cast<double>(args.count), operand_bytes(args), ""};
}

Cost cost_of(const GeluBackward& args) {
  return {18.0 * static_cast<double>(args.count), operand_bytes(args), ""};
}

void run_cpu(const GeluForward& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.y.dtype, args.count));
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(forward)(args, stream, begin, end);
  });
}

void run_cpu(const GeluBackward& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.dx.dtype, args.count));
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(backward)(args, stream, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
