#include <algorithm>
#include <cmath>

#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"
#include "kernels/norm/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/norm_forward.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include <hwy/cache_control.h>

#include "kernels/base/vector_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Prefetches the current rows and those after them. Rows are walked two or three times, and the memory bus would idle
// in all passes but the first, so each pass prefetches rows that are read or written next. Lines to be written are
// prefetched too, because stores wait for them one after another.
template <class T>
struct Rows {
  const T* x;
  const T* residual;
  T* sum;
  T* y;
};

// Adds residuals, rounded as stored, to `kept`, and returns each row's sum or sum of squares.
template <bool kStream, bool kSquares, std::size_t kRows, class T>
RowFloats<kRows> add_residuals(const Rows<T>& rows, T* kept, std::size_t columns) {
  RowPairs<kRows> totals = all_rows<kRows>(0);
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    if constexpr (!kStream && kSquares) prefetch_rows<kRows>(rows.y, c);
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::size_t at = r * columns + c;
      const Pair a = part.load(rows.x + at);
      const Pair b = part.load(rows.residual + at);
      const Pair exact{hn::Add(a.a, b.a), hn::Add(a.b, b.b)};
      part.store(exact, kept + at);
      const Pair value = part.load(kept + at);
      if constexpr (kStream) {
        if (kept != rows.sum) part.stream(value, rows.sum + at);
      }
      const Pair factor = kSquares ? value : both(hn::Set(F32(), 1.0F));
      totals[r] = {hn::MulAdd(value.a, factor.a, totals[r].a), hn::MulAdd(value.b, factor.b, totals[r].b)};
    }
  });
  return row_sums(totals);
}

template <std::size_t kRows, class T>
RowFloats<kRows> sums(const T* x, std::size_t columns) {
  RowPairs<kRows> totals = all_rows<kRows>(0);
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    for (std::size_t r = 0; r < kRows; ++r) {
      const Pair value = part.load(x + r * columns + c);
      totals[r] = {hn::Add(totals[r].a, value.a), hn::Add(totals[r].b, value.b)};
    }
  });
  return row_sums(totals);
}

// Takes the variance from distances to `mean` in a second pass over a row that is in the L1 cache: a difference of sums
// of squares would lose digits.
template <bool kStream, std::size_t kRows, class T>
RowFloats<kRows> square_sums(const T* x, const T* y, std::size_t columns, const RowFloats<kRows>& mean) {
  const F32 d;
  RowPairs<kRows> totals = all_rows<kRows>(0);
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    if constexpr (!kStream) prefetch_rows<kRows>(y, c);
    for (std::size_t r = 0; r < kRows; ++r) {
      const Pair value = part.load(x + r * columns + c);
      const VF32 centre = hn::Set(d, mean[r]);
      const Pair distance = part.or_else({hn::Sub(value.a, centre), hn::Sub(value.b, centre)}, hn::Zero(d));
      totals[r] = {hn::MulAdd(distance.a, distance.a, totals[r].a), hn::MulAdd(distance.b, distance.b, totals[r].b)};
    }
  });
  return row_sums(totals);
}

// y = (x - mean) * rstd * gamma + beta; RMSNorm has neither mean nor beta.
template <bool kStream, bool kLayer, std::size_t kRows, class T>
void write_rows(const NormForward& args, const Rows<T>& next, const T* x, T* y, const RowFloats<kRows>& mean,
                const RowFloats<kRows>& rstd) {
  const F32 d;
  const auto columns = static_cast<std::size_t>(args.columns);
  const T* gamma = args.gamma.as<T>();
  const T* beta = args.beta.as<T>();
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    const Pair scale = part.load(gamma + c);
    const Pair offset = kLayer ? part.load(beta + c) : both(hn::Zero(d));
    prefetch_rows<kRows>(next.x, c);
    if (args.with_residual) {
      prefetch_rows<kRows>(next.residual, c);
      if constexpr (!kStream) prefetch_rows<kRows>(next.sum, c);
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      const Pair value = part.load(x + r * columns + c);
      const VF32 factor = hn::Set(d, rstd[r]);
      Pair result;
      if constexpr (kLayer) {
        const VF32 centre = hn::Set(d, mean[r]);
        result = {hn::MulAdd(hn::Mul(hn::Sub(value.a, centre), factor), scale.a, offset.a),
                  hn::MulAdd(hn::Mul(hn::Sub(value.b, centre), factor), scale.b, offset.b)};
      } else {
        result = {hn::Mul(hn::Mul(value.a, factor), scale.a), hn::Mul(hn::Mul(value.b, factor), scale.b)};
      }
      if constexpr (kStream) {
        part.stream(result, y + r * columns + c);
      } else {
        part.store(result, y + r * columns + c);
      }
    }
  });
}

template <class T>
Rows<T> rows_from(const NormForward& args, std::size_t row) {
  const std::size_t first = row * static_cast<std::size_t>(args.columns);
  if (!args.with_residual) return {args.x.as<T>() + first, nullptr, nullptr, args.y.as<T>() + first};
  return {args.x.as<T>() + first, args.residual.as<T>() + first, args.sum.as<T>() + first, args.y.as<T>() + first};
}

// The part that makes a rank's sums, of squares too, as the mean of all columns is not known yet.
template <bool kLayer, std::size_t kRows, class T>
void sums_of_group(const NormForward& args, std::size_t row) {
  const auto columns = static_cast<std::size_t>(args.columns);
  const std::size_t first = row * columns;
  const T* x = args.x.as<T>() + first;
  if (args.with_residual) {
    T* const sum = args.sum.as<T>() + first;
    add_residuals<false, !kLayer, kRows>(Rows<T>{x, args.residual.as<T>() + first, sum, sum}, sum, columns);
    x = sum;
  }
  const RowFloats<kRows> total = kLayer ? sums<kRows>(x, columns) : RowFloats<kRows>{};
  const RowFloats<kRows> squares = square_sums<true, kRows>(x, x, columns, RowFloats<kRows>{});
  float* to = args.sums.as<float>() + row * (kLayer ? 2 : 1);
  for (std::size_t r = 0; r < kRows; ++r) {
    if constexpr (kLayer) *to++ = total[r];
    *to++ = squares[r];
  }
}

// The part that has the sums over all columns.
template <bool kLayer, std::size_t kRows, class T>
void rest_of_group(const NormForward& args, std::size_t row) {
  const auto count = static_cast<float>(args.columns * args.ranks);
  const float* from = args.sums.as<float>() + row * (kLayer ? 2 : 1);
  RowFloats<kRows> mean{};
  RowFloats<kRows> rstd;
  for (std::size_t r = 0; r < kRows; ++r) {
    if constexpr (kLayer) mean[r] = args.mean.as<float>()[row + r] = *from++ / count;
    const float variance = *from++ / count - mean[r] * mean[r];
    args.rstd.as<float>()[row + r] = rstd[r] = 1 / std::sqrt(std::max(variance, 0.0F) + args.epsilon);
  }
  const std::size_t first = row * static_cast<std::size_t>(args.columns);
  const T* const x = args.x.as<T>() + first;
  T* const y = args.y.as<T>() + first;
  write_rows<false, kLayer, kRows>(args, Rows<T>{x, x, y, y}, x, y, mean, rstd);
}

template <bool kStream, bool kLayer, std::size_t kRows, class T>
void forward_group(const NormForward& args, std::size_t row) {
  if (args.part == NormPart::sums) return sums_of_group<kLayer, kRows, T>(args, row);
  if (args.part == NormPart::rest) return rest_of_group<kLayer, kRows, T>(args, row);
  constexpr std::size_t kKeptElems = 8192;
  HWY_ALIGN T kept[kStream ? kKeptElems : 1];  // sums that are written with non-temporal stores
  const auto columns = static_cast<std::size_t>(args.columns);
  const auto count = static_cast<float>(columns);
  const Rows<T> rows = rows_from<T>(args, row);
  const T* x = rows.x;
  RowFloats<kRows> mean{};
  RowFloats<kRows> squares{};
  if (args.with_residual) {
    T* const sum = kStream && kRows * columns <= kKeptElems ? static_cast<T*>(kept) : rows.sum;
    (kLayer ? mean : squares) = add_residuals<kStream, !kLayer, kRows>(rows, sum, columns);
    x = sum;
  } else if constexpr (kLayer) {
    mean = sums<kRows>(x, columns);
  }
  if constexpr (kLayer) {
    for (float& value : mean) value /= count;
  }
  if (kLayer || !args.with_residual) squares = square_sums<kStream, kRows>(x, rows.y, columns, mean);
  RowFloats<kRows> rstd;
  for (std::size_t r = 0; r < kRows; ++r) {
    rstd[r] = 1 / std::sqrt(squares[r] / count + args.epsilon);
    args.rstd.as<float>()[row + r] = rstd[r];
    if constexpr (kLayer) args.mean.as<float>()[row + r] = mean[r];
  }
  write_rows<kStream, kLayer, kRows>(args, rows_from<T>(args, row + kRows), x, rows.y, mean, rstd);
}

template <bool kStream, bool kLayer, class T>
void forward_rows(const NormForward& args, std::int64_t begin, std::int64_t end) {
  constexpr std::size_t kGroup = 8 / sizeof(T);  // these rows and the next ones fit in the L1 cache
  for_row_groups<kGroup>(static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
                         static_cast<std::size_t>(args.columns),
                         [&](auto row, auto rows) { forward_group<kStream, kLayer, rows(), T>(args, row); });
  if constexpr (kStream) hwy::FlushStream();
}

template <bool kLayer, class T>
void forward_of(const NormForward& args, bool stream, std::int64_t begin, std::int64_t end) {
  const auto columns = static_cast<std::size_t>(args.columns);
  const bool aligned =
      rows_are_aligned(args.y.as<T>(), columns) && (!args.with_residual || rows_are_aligned(args.sum.as<T>(), columns));
  if (stream && aligned) {
    return forward_rows<true, kLayer, T>(args, begin, end);
  }
  forward_rows<false, kLayer, T>(args, begin, end);
}

void forward(const NormForward& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (args.norm == Norm::layer) return forward_of<true, T>(args, stream, begin, end);
    forward_of<false, T>(args, stream, begin, end);
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
constexpr std::int64_t kGrain = 4;  // rows
}  // namespace

// FLOPs per row of C columns. LayerNorm: C additions and a division for the mean; 3 C and a division for the variance;
// an addition, a square root and a division for rstd; 4 C for y. RMSNorm: 2 C and a division for the mean square; 3 for
// rstd; 2 C for y. The residual adds C. In parts: 2 C for each sum (C for the mean's); the rest as above, with two more
// for a variance.
Cost cost_of(const NormForward& args) {
  const auto columns = static_cast<double>(args.columns);
  const bool layer = args.norm == Norm::layer;
  const double sums = (layer ? 3 : 2) * columns;
  const double rest = (layer ? 4 : 2) * columns + (layer ? 7 : 4);
  double row_flops = layer ? 8 * columns + 5 : 4 * columns + 4;
  if (args.part != NormPart::whole) row_flops = args.part == NormPart::sums ? sums : rest;
  if (args.with_residual && args.part != NormPart::rest) row_flops += columns;
  return cost_of_operands(static_cast<double>(args.rows) * row_flops, args);
}

void run_cpu(const NormForward& args, ThreadPool& pool) {
  const bool stream =
      args.part == NormPart::whole && pool.kept<Caches>().outgrown_by(size_bytes(args.y.dtype, args.y.elems));
  pool.for_ranges(args.rows, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(forward)(args, stream, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
