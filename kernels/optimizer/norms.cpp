#include <cmath>

#include "kernels/base/view.h"
#include "kernels/optimizer/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/norms.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Four pairs of sums, because a single one would wait for its own additions. The order of elements within a pair is
// irrelevant to a sum.
template <class T>
double squares_range(const T* x, std::size_t count) {
  const std::size_t step = pair_elems();
  VF32 s0 = hn::Zero(F32());
  VF32 s1 = s0;
  VF32 s2 = s0;
  VF32 s3 = s0;
  std::size_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    prefetch_ahead(x + i, 2 * step * sizeof(T));
    const Pair p = load_pair(x + i);
    const Pair q = load_pair(x + i + step);
    s0 = hn::MulAdd(p.a, p.a, s0);
    s1 = hn::MulAdd(p.b, p.b, s1);
    s2 = hn::MulAdd(q.a, q.a, s2);
    s3 = hn::MulAdd(q.b, q.b, s3);
  }
  for (; i < count; i += step) {
    const Pair p = i + step <= count ? load_pair(x + i) : load_pair_tail(x + i, count - i);
    s0 = hn::MulAdd(p.a, p.a, s0);
    s1 = hn::MulAdd(p.b, p.b, s1);
  }
  const VF32 sum = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(F32(), sum)));
}

double squares(const SumOfSquares& args, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  with_activation_type(args.x.dtype, [&](auto zero) {
    sum = squares_range(args.x.as<decltype(zero)>() + begin, static_cast<std::size_t>(end - begin));
  });
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(squares);

// Elements per piece: few enough that f32 sums are accurate to 6 digits, many enough that f64 sums over pieces cost
// nothing.
constexpr std::int64_t kPiece = std::int64_t{1} << 14;

}  // namespace

// Each thread takes consecutive pieces, because it prefetches beyond the end of a piece.
void run_cpu(const SumOfSquares& args, ThreadPool& pool) {
  const std::int64_t num_pieces = (args.count + kPiece - 1) / kPiece;
  const std::span<double> sums = pool.scratch_of<double>(-1, static_cast<std::size_t>(num_pieces));
  pool.for_ranges(num_pieces, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t piece = first; piece < last; ++piece) {
      const std::int64_t begin = piece * kPiece;
      const std::int64_t end = begin + kPiece < args.count ? begin + kPiece : args.count;
      sums[static_cast<std::size_t>(piece)] = HWY_DYNAMIC_DISPATCH(squares)(args, begin, end);
    }
  });
  double sum = 0;
  for (const double of_piece : sums) sum += of_piece;
  *args.sum.as<double>() = sum;
}

void run_cpu(const ClipFactor& args, ThreadPool& /*pool*/) {
  double sum = 0;
  for (std::int64_t i = 0; i < args.shards; ++i) sum += args.sums.as<double>()[i];
  const auto scale = static_cast<double>(args.grad_scale);
  const double norm = scale * std::sqrt(sum);
  const double ratio = static_cast<double>(args.most) / (norm + kClipEpsilon);
  *args.factor.as<float>() = static_cast<float>(scale * (ratio > 1 ? 1 : ratio));  // NaN stays
  *args.norm.as<float>() = static_cast<float>(norm);
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
