#include "kernels/cast/cast.h"

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cast/cast.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

void cast(const Cast& args, bool stream, std::int64_t begin, std::int64_t end) {
  const auto count = static_cast<std::size_t>(end - begin);
  with_float_type(args.from, [&](auto from) {
    with_float_type(args.to, [&](auto to) {
      const auto* x = args.x.as<decltype(from)>() + begin;
      auto* y = args.y.as<decltype(to)>() + begin;
      produce_elems(y, count, stream, 1,
                    [&](std::size_t i, std::size_t elems, auto* out) { convert_elems(x + i, out, elems, args.scale); });
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
HWY_EXPORT(cast);
constexpr std::int64_t kGrain = 1024;  // elements

void check_is_float(std::string_view name, core::DType dtype) {
  if (kFloats.contains(dtype)) return;
  throw core::usage_error("cast: " + std::string(name) + " is " + std::string(core::name_of(dtype)) +
                          "; allowed: half, float, bfloat16, f8e4m3, f8e5m2");
}
}  // namespace

void Cast::check_shape() const {
  check_at_least(name(), "count", count, 1);
  check_is_float("from", from);
  check_is_float("to", to);
  check_finite(name(), "scale", scale);
}

Cost cost_of(const Cast& args) {
  return cost_of_operands(static_cast<double>(args.count), args);
}

void run_cpu(const Cast& args, ThreadPool& pool) {
  // False if much more is read than written: two threads, from memory, bf16 to e4m3, ordinary stores take 0.90 of the
  // time.
  const bool writes_most = 2 * core::size_of(args.to) > core::size_of(args.from);
  const bool stream = writes_most && pool.kept<Caches>().outgrown_by(size_bytes(args.to, args.count));
  pool.for_ranges(args.count, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(cast)(args, stream, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
