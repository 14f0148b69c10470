#include "kernels/softmax/softmax.h"

#include <limits>
#include <type_traits>

#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/softmax.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include <hwy/cache_control.h>

#include "kernels/base/vector_map-inl.h"
#include "kernels/base/vector_math-inl.h"
#include "kernels/base/vector_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Relative error allowed for the exponential, so that it is far below the rounding of a result.
template <class T>
constexpr int kExpDegree = std::is_same_v<T, float>           ? 5
                           : std::is_same_v<T, core::Float16> ? 4
                                                              : 3;

// Number of floats in a row of numerators: a multiple of a vector pair, in the lane order of T's pairs.
std::size_t numerator_elems(std::int64_t columns) {
  const auto step = static_cast<std::int64_t>(pair_elems());
  return static_cast<std::size_t>((columns + step - 1) / step * step);
}

template <std::size_t kRows, class T>
RowFloats<kRows> maxima(const T* x, std::size_t columns) {
  const VF32 lowest = hn::Neg(hn::Inf(F32()));
  RowPairs<kRows> largest = all_rows<kRows>(-std::numeric_limits<float>::infinity());
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    for (std::size_t r = 0; r < kRows; ++r) {
      const Pair value = part.or_else(part.load(x + r * columns + c), lowest);
      largest[r] = {hn::Max(largest[r].a, value.a), hn::Max(largest[r].b, value.b)};
    }
  });
  return row_maxima(largest);
}

// Writes exp(x - max) and returns the sums.
template <std::size_t kRows, class T>
RowFloats<kRows> write_numerators(const T* x, std::size_t columns, const RowFloats<kRows>& max, float* numerators) {
  const F32 d;
  const std::size_t stride = numerator_elems(static_cast<std::int64_t>(columns));
  RowPairs<kRows> sums = all_rows<kRows>(0);
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    prefetch_rows<kRows>(x + kRows * columns, c);
    for (std::size_t r = 0; r < kRows; ++r) {
      const Pair value = part.load(x + r * columns + c);
      const VF32 high = hn::Set(d, max[r]);
      const Pair e{weight_f32<kExpDegree<T>>(hn::Sub(value.a, high)),
                   weight_f32<kExpDegree<T>>(hn::Sub(value.b, high))};
      store_pair(e, numerators + r * stride + c);
      const Pair counted = part.or_else(e, hn::Zero(d));
      sums[r] = {hn::Add(sums[r].a, counted.a), hn::Add(sums[r].b, counted.b)};
    }
  });
  return row_sums(sums);
}

template <bool kStream, std::size_t kRows, class T>
void write_shares(const float* numerators, const RowFloats<kRows>& sum, std::size_t columns, T* y) {
  const F32 d;
  const std::size_t stride = numerator_elems(static_cast<std::int64_t>(columns));
  RowPairs<kRows> scale;
  for (std::size_t r = 0; r < kRows; ++r) scale[r] = both(hn::Set(d, 1 / sum[r]));
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    if constexpr (!kStream) prefetch_rows<kRows>(y + kRows * columns, c);
    for (std::size_t r = 0; r < kRows; ++r) {
      const Pair e = load_pair(numerators + r * stride + c);
      const Pair share{hn::Mul(e.a, scale[r].a), hn::Mul(e.b, scale[r].b)};
      if constexpr (kStream) {
        stream_result(part, share, y + r * columns + c);
      } else {
        store_result(part, share, y + r * columns + c);
      }
    }
  });
}

template <bool kStream, class T>
void forward_rows(const SoftmaxForward& args, float* numerators, std::int64_t begin, std::int64_t end) {
  const auto columns = static_cast<std::size_t>(args.columns);
  for_row_groups(static_cast<std::size_t>(begin), static_cast<std::size_t>(end), columns, [&](auto row, auto rows) {
    const T* x = args.x.as<T>() + row * columns;
    const auto max = maxima<rows()>(x, columns);
    const auto sum = write_numerators<rows()>(x, columns, max, numerators);
    write_shares<kStream, rows()>(numerators, sum, columns, args.y.as<T>() + row * columns);
  });
  if constexpr (kStream) hwy::FlushStream();
}

template <std::size_t kRows, class T>
RowFloats<kRows> products(const T* y, const T* dy, std::size_t columns) {
  RowPairs<kRows> sums = all_rows<kRows>(0);
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    prefetch_rows<kRows>(y + kRows * columns, c);
    for (std::size_t r = 0; r < kRows; ++r) {
      const Pair share = part.load(y + r * columns + c);
      const Pair slope = part.load(dy + r * columns + c);
      sums[r] = {hn::MulAdd(share.a, slope.a, sums[r].a), hn::MulAdd(share.b, slope.b, sums[r].b)};
    }
  });
  return row_sums(sums);
}

template <bool kStream, std::size_t kRows, class T>
void write_gradients(const T* y, const T* dy, const RowFloats<kRows>& sum, std::size_t columns, T* dx) {
  const F32 d;
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    prefetch_rows<kRows>(dy + kRows * columns, c);
    if constexpr (!kStream) prefetch_rows<kRows>(dx + kRows * columns, c);
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::size_t at = r * columns + c;
      const Pair share = part.load(y + at);
      const Pair slope = part.load(dy + at);
      const VF32 mean = hn::Set(d, sum[r]);
      const Pair result{hn::Mul(share.a, hn::Sub(slope.a, mean)), hn::Mul(share.b, hn::Sub(slope.b, mean))};
      if constexpr (kStream) {
        stream_result(part, result, dx + at);
      } else {
        store_result(part, result, dx + at);
      }
    }
  });
}

template <bool kStream, class T>
void backward_rows(const SoftmaxBackward& args, std::int64_t begin, std::int64_t end) {
  const auto columns = static_cast<std::size_t>(args.columns);
  // Group sizes count bytes of T, not of floats: the rows of both operands and the next rows share the L1 cache.
  for_row_groups(static_cast<std::size_t>(begin), static_cast<std::size_t>(end), columns * sizeof(T),
                 [&](auto row, auto rows) {
                   const T* y = args.y.as<T>() + row * columns;
                   const T* dy = args.dy.as<T>() + row * columns;
                   const auto sum = products<rows()>(y, dy, columns);
                   write_gradients<kStream, rows()>(y, dy, sum, columns, args.dx.as<T>() + row * columns);
                 });
  if constexpr (kStream) hwy::FlushStream();
}

void forward(const SoftmaxForward& args, bool stream, float* numerators, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (stream && rows_are_aligned(args.y.as<T>(), static_cast<std::size_t>(args.columns))) {
      return forward_rows<true, T>(args, numerators, begin, end);
    }
    forward_rows<false, T>(args, numerators, begin, end);
  });
}

void backward(const SoftmaxBackward& args, bool stream, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (stream && rows_are_aligned(args.dx.as<T>(), static_cast<std::size_t>(args.columns))) {
      return backward_rows<true, T>(args, begin, end);
    }
    backward_rows<false, T>(args, begin, end);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(numerator_elems);
HWY_EXPORT(forward);
HWY_EXPORT(backward);
constexpr std::int64_t kGroup = 4;  // rows
}  // namespace

// FLOPs per row of C columns: C subtractions, exponentials and divisions, C - 1 additions.
Cost cost_of(const SoftmaxForward& args) {
  const auto columns = static_cast<double>(args.columns);
  return cost_of_operands(static_cast<double>(args.rows) * (4 * columns - 1), args);
}

// FLOPs per row of C columns: 2 C multiplications, C - 1 additions, C subtractions.
Cost cost_of(const SoftmaxBackward& args) {
  const auto columns = static_cast<double>(args.columns);
  return cost_of_operands(static_cast<double>(args.rows) * (4 * columns - 1), args);
}

void run_cpu(const SoftmaxForward& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.y.dtype, args.y.elems));
  const std::size_t numerator_floats = 4 * HWY_DYNAMIC_DISPATCH(numerator_elems)(args.columns);
  pool.for_pieces(pool.size(), [&](std::int64_t piece, int thread) {
    float* numerators = pool.scratch_of<float>(thread, numerator_floats).data();
    const std::int64_t begin = args.rows * piece / pool.size();
    const std::int64_t end = args.rows * (piece + 1) / pool.size();
    HWY_DYNAMIC_DISPATCH(forward)(args, stream, numerators, begin, end);
  });
}

void run_cpu(const SoftmaxBackward& args, ThreadPool& pool) {
  const bool stream = pool.kept<Caches>().outgrown_by(size_bytes(args.dx.dtype, args.dx.elems));
  pool.for_ranges(args.rows, kGroup, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward)(args, stream, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
