// A sample gives a magnitude that somewhat more than k elements reach. One pass collects those, and the k-th of them is
// found among few. If the sample was misleading, all elements are collected.
#include "kernels/top_k/top_k.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "kernels/base/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/top_k/top_k.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Appends the indices in [first, last) whose keys are at least `least`.
void collect(const float* x, std::int64_t first, std::int64_t last, std::uint32_t least,
             std::vector<std::int32_t>& found) {
  const hn::ScalableTag<std::int32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto magnitude = hn::Set(d, 0x7fffffff);
  const auto below = hn::Set(d, static_cast<std::int32_t>(least) - 1);
  const auto* const bits = reinterpret_cast<const std::int32_t*>(x);
  std::int64_t i = first;
  for (; i + lanes <= last; i += lanes) {
    prefetch_ahead(x + i, static_cast<std::size_t>(lanes) * sizeof(float));
    const auto reached = hn::Gt(hn::And(hn::LoadU(d, bits + i), magnitude), below);
    if (hn::AllFalse(d, reached)) continue;
    const std::size_t had = found.size();
    found.resize(had + static_cast<std::size_t>(lanes));
    const std::size_t more =
        hn::CompressStore(hn::Iota(d, static_cast<std::int32_t>(i)), reached, d, found.data() + had);
    found.resize(had + more);
  }
  for (; i < last; ++i) {
    if (magnitude_key(x[i]) >= least) found.push_back(static_cast<std::int32_t>(i));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {

HWY_EXPORT(collect);
constexpr std::int64_t kGrain = 4096;    // elements
constexpr std::int64_t kSample = 16384;  // elements
constexpr double kDeviations = 4;        // standard deviations of the sample's count above the count that k needs
constexpr std::int64_t kMostCount = std::int64_t{1} << 31;

// Estimates a key that k elements and some more reach.
std::uint32_t guess(const TopK& args) {
  const std::int64_t stride = args.count / kSample;
  if (stride < 2) return 0;
  const auto* const x = args.x.as<float>();
  std::vector<std::uint32_t> keys;
  for (std::int64_t i = 0; i < kSample; ++i) {
    // Positions within the strides vary, so that a period in x has no effect.
    keys.push_back(magnitude_key(x[i * stride + i * 7919 % stride]));
  }
  const double expected = static_cast<double>(args.k) / static_cast<double>(args.count) * static_cast<double>(kSample);
  const double place = std::ceil(expected + kDeviations * (std::sqrt(expected) + 1));
  if (place >= static_cast<double>(kSample)) return 0;
  const auto at = keys.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(keys.begin(), at, keys.end(), std::greater<>());
  return *at;
}

// Returns the indices of keys of at least `least`, ascending.
std::vector<std::int32_t> collected(const TopK& args, std::uint32_t least, ThreadPool& pool) {
  std::vector<std::vector<std::int32_t>> parts(static_cast<std::size_t>(pool.size()));
  const std::int64_t grains = (args.count + kGrain - 1) / kGrain;
  pool.for_pieces(pool.size(), [&](std::int64_t piece, int /*thread*/) {
    const std::int64_t first = grains * piece / pool.size() * kGrain;
    const std::int64_t last = std::min(args.count, grains * (piece + 1) / pool.size() * kGrain);
    HWY_DYNAMIC_DISPATCH(collect)(args.x.as<float>(), first, last, least, parts[static_cast<std::size_t>(piece)]);
  });
  std::vector<std::int32_t> all = std::move(parts.front());
  for (std::size_t part = 1; part < parts.size(); ++part) all.insert(all.end(), parts[part].begin(), parts[part].end());
  return all;
}

// Keeps the k largest, in order.
void keep_largest(const float* x, std::int64_t k, std::vector<std::int32_t>& indices) {
  if (static_cast<std::int64_t>(indices.size()) <= k) return;
  const auto larger = [x](std::int32_t a, std::int32_t b) {
    const std::uint32_t of_a = magnitude_key(x[a]);
    const std::uint32_t of_b = magnitude_key(x[b]);
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::vector<std::int32_t> by_size = indices;
  const auto last = by_size.begin() + (k - 1);
  std::nth_element(by_size.begin(), last, by_size.end(), larger);
  const std::int32_t least = *last;
  indices.erase(std::remove_if(indices.begin(), indices.end(), [&](std::int32_t i) { return larger(least, i); }),
                indices.end());
}

}  // namespace

void TopK::check_shape() const {
  check_at_least(name(), "k", k, 1);
  check_at_least(name(), "count", count, k);
  if (count >= kMostCount) {
    throw core::usage_error("top_k: count is " + std::to_string(count) + "; allowed: below 2^31, as indices are i32");
  }
  if (!(at >= 0)) throw core::usage_error("top_k: at is " + std::to_string(at) + "; allowed: 0 or more");
}
void ScatterAdd::check_shape() const {
  check_at_least(name(), "k", k, 1);
  check_at_least(name(), "count", count, k);
}

Cost cost_of(const TopK& args) {
  return {0, operand_bytes(args), ""};
}
Cost cost_of(const ScatterAdd& args) {
  const auto k = static_cast<double>(args.k);
  return {k, 16 * k, "only the elements of y that change are touched"};
}

void run_cpu(const TopK& args, ThreadPool& pool) {
  const std::uint32_t floor = magnitude_key(args.at);
  const std::uint32_t least = std::max(floor, guess(args));
  std::vector<std::int32_t> indices = collected(args, least, pool);
  if (static_cast<std::int64_t>(indices.size()) < args.k && least > floor) indices = collected(args, floor, pool);
  const auto* const x = args.x.as<float>();
  keep_largest(x, args.k, indices);
  auto* const values = args.values.as<float>();
  auto* const to = args.indices.as<std::int32_t>();
  std::fill(std::copy(indices.begin(), indices.end(), to), to + args.k, -1);
  for (std::int64_t i = 0; i < args.k; ++i) values[i] = to[i] < 0 ? 0.0F : x[to[i]];
}

void run_cpu(const ScatterAdd& args, ThreadPool& pool) {
  pool.for_ranges(args.k, kGrain, [&](auto first, auto last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int32_t to = args.indices.as<std::int32_t>()[i];
      if (to >= 0) args.y.as<float>()[to] += args.values.as<float>()[i];
    }
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
