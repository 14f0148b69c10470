#include "kernels/residual/residual.h"

#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/residual/residual.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

struct Sum {
  HWY_INLINE VF32 operator()(VF32 a, VF32 b) const { return hn::Add(a, b); }
};

void add(const ResidualAdd& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<std::size_t>(end - begin);
    map_elems(Sum(), stream, count, args.y.as<T>() + begin, args.a.as<T>() + begin, args.b.as<T>() + begin);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(add);
constexpr std::int64_t kGrain = 1024;  // elements
}  // namespace

Cost cost_of(const ResidualAdd& args) {
  return {static_cast<double>(args.count), operand_bytes(args), ""};
}

void run_cpu(const ResidualAdd& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.y.dtype, args.count));
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(add)(args, stream, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
