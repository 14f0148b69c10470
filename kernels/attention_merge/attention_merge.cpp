#include "kernels/attention_merge/attention_merge.h"

#include <cmath>
#include <limits>

#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_merge/attention_merge.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

struct Weighted {
  float first;
  float second;
  HWY_INLINE VF32 operator()(VF32 o, VF32 part) const {
    const F32 d;
    return hn::MulAdd(hn::Set(d, first), o, hn::Mul(hn::Set(d, second), part));
  }
};
struct Second {
  HWY_INLINE VF32 operator()(VF32 /*o*/, VF32 part) const { return part; }
};

// Merges rows [begin, end): one head of one query each.
template <class T>
void merge_rows(const AttentionMerge& args, std::int64_t begin, std::int64_t end) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const auto columns = static_cast<std::size_t>(args.head_columns);
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t query = row / args.heads % args.queries;
    const std::int64_t line = row / args.heads / args.queries * args.heads + row % args.heads;
    float& lse = args.lse.as<float>()[line * args.lse_row() + query];
    const float part_lse = args.part_lse.as<float>()[line * args.queries + query];
    T* const o = args.o.as<T>() + row * args.head_columns;
    const T* const part = args.part_o.as<T>() + row * args.head_columns;
    if (part_lse == kNone) continue;
    if (lse == kNone) {
      map_elems(Second(), false, columns, o, o, part);
      lse = part_lse;
      continue;
    }
    const bool second_is_larger = part_lse > lse;
    const float share = std::exp(second_is_larger ? lse - part_lse : part_lse - lse);
    const float of_larger = 1 / (1 + share);
    const float of_smaller = share * of_larger;
    lse = (second_is_larger ? part_lse : lse) + std::log1p(share);
    map_elems(Weighted{second_is_larger ? of_smaller : of_larger, second_is_larger ? of_larger : of_smaller}, false,
              columns, o, o, part);
  }
}

void merge(const AttentionMerge& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.o.dtype, [&](auto zero) { merge_rows<decltype(zero)>(args, begin, end); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(merge);
constexpr std::int64_t kGrain = 64;  // rows
}  // namespace

void AttentionMerge::check_shape() const {
  check_sizes(name(), {{"batch", batch}, {"heads", heads}, {"queries", queries}, {"head_columns", head_columns}});
  if (lse_stride != 0) check_at_least(name(), "lse_stride", lse_stride, queries);
}

// FLOPs per row: -, exp, +, two divisions, log, +; per element: two products and their sum.
Cost cost_of(const AttentionMerge& args) {
  const auto rows = static_cast<double>(args.rows());
  const auto columns = static_cast<double>(args.head_columns);
  return cost_of_operands(rows * (3 * columns + 7), args);
}

void run_cpu(const AttentionMerge& args, ThreadPool& pool) {
  pool.for_ranges(args.rows(), kGrain, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(merge)(args, begin, end); });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
