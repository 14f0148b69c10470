// Parameter gradients are sums over all rows. Rows are cut into blocks by the shape alone; one thread sums a block in
// the rows' order, and the sums of the blocks are added in the blocks' order, so that the bits do not depend on the
// number of threads.
#include <algorithm>

#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"
#include "kernels/norm/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/norm_backward.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include <hwy/cache_control.h>

#include "kernels/base/vector_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Number of floats in a row of sums: a multiple of a vector pair, in the lane order of the operands' pairs.
std::size_t sum_elems(std::int64_t columns) {
  const auto step = static_cast<std::int64_t>(pair_elems());
  return static_cast<std::size_t>((columns + step - 1) / step * step);
}

// Sums of one block: [sum_elems] each.
struct BlockSums {
  float* dgamma;
  float* dbeta;
};

template <std::size_t kRows>
struct RowValues {
  RowFloats<kRows> rstd;
  RowFloats<kRows> shift;  // -mean * rstd, so that x * rstd + shift is the normalised x
  RowFloats<kRows> mean;   // mean of the gradient of the normalised x
  RowFloats<kRows> slope;  // slope of that gradient along the normalised x
};

template <bool kStream, bool kLayer, std::size_t kRows, class T>
void add_row_sums(const NormBackward& args, std::size_t row, RowValues<kRows>& values, const BlockSums& block) {
  const F32 d;
  const auto columns = static_cast<std::size_t>(args.columns);
  const T* dy = args.dy.as<T>() + row * columns;
  const T* x = args.x.as<T>() + row * columns;
  const T* gamma = args.gamma.as<T>();
  const bool is_whole = args.part == NormPart::whole;
  const T* const written = is_whole ? args.dx.as<T>() + row * columns : dy;
  RowPairs<kRows> means = all_rows<kRows>(0);
  RowPairs<kRows> slopes = all_rows<kRows>(0);
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    const Pair scale = part.load(gamma + c);
    // Prefetches what the second pass needs, also the lines to be written, because stores wait for them one after
    // another.
    if (args.with_residual && is_whole) prefetch_rows<kRows>(args.dsum.as<T>() + row * columns, c);
    if constexpr (!kStream) prefetch_rows<kRows>(written, c);
    Pair dgamma = load_pair(block.dgamma + c);
    Pair dbeta = kLayer ? load_pair(block.dbeta + c) : both(hn::Zero(d));
    for (std::size_t r = 0; r < kRows; ++r) {
      const Pair slope = part.load(dy + r * columns + c);
      const Pair value = part.load(x + r * columns + c);
      const VF32 rstd = hn::Set(d, values.rstd[r]);
      const VF32 shift = hn::Set(d, values.shift[r]);
      const Pair normal{hn::MulAdd(value.a, rstd, shift), hn::MulAdd(value.b, rstd, shift)};
      const Pair gradient{hn::Mul(slope.a, scale.a), hn::Mul(slope.b, scale.b)};
      slopes[r] = {hn::MulAdd(gradient.a, normal.a, slopes[r].a), hn::MulAdd(gradient.b, normal.b, slopes[r].b)};
      dgamma = {hn::MulAdd(slope.a, normal.a, dgamma.a), hn::MulAdd(slope.b, normal.b, dgamma.b)};
      if constexpr (kLayer) {
        means[r] = {hn::Add(means[r].a, gradient.a), hn::Add(means[r].b, gradient.b)};
        dbeta = {hn::Add(dbeta.a, slope.a), hn::Add(dbeta.b, slope.b)};
      }
    }
    store_pair(dgamma, block.dgamma + c);
    if constexpr (kLayer) store_pair(dbeta, block.dbeta + c);
  });
  values.mean = row_sums(means);
  values.slope = row_sums(slopes);
}

// dx = rstd * (gradient - mean - normal * slope) = rstd * gradient + along * x + rest, plus the added gradient dsum.
template <bool kStream, std::size_t kRows, class T>
void write_rows(const NormBackward& args, std::size_t row, const RowValues<kRows>& values) {
  const F32 d;
  const auto columns = static_cast<std::size_t>(args.columns);
  const auto count = static_cast<float>(args.columns * args.ranks);
  const std::size_t first = row * columns;
  const T* gamma = args.gamma.as<T>();
  RowFloats<kRows> along;
  RowFloats<kRows> rest;
  for (std::size_t r = 0; r < kRows; ++r) {
    const float slope = values.slope[r] / count;
    along[r] = -values.rstd[r] * values.rstd[r] * slope;
    rest[r] = -values.rstd[r] * (values.mean[r] / count + values.shift[r] * slope);
  }
  const std::size_t next = first + kRows * columns;
  for_pairs<T>(columns, [&](std::size_t c, auto part) HWY_ATTR {
    const Pair scale = part.load(gamma + c);
    prefetch_rows<kRows>(args.dy.as<T>() + next, c);
    prefetch_rows<kRows>(args.x.as<T>() + next, c);
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::size_t at = first + r * columns + c;
      const Pair slope = part.load(args.dy.as<T>() + at);
      const Pair value = part.load(args.x.as<T>() + at);
      const VF32 rstd = hn::Set(d, values.rstd[r]);
      const VF32 factor = hn::Set(d, along[r]);
      const VF32 constant = hn::Set(d, rest[r]);
      Pair dx{hn::MulAdd(hn::Mul(slope.a, scale.a), rstd, hn::MulAdd(value.a, factor, constant)),
              hn::MulAdd(hn::Mul(slope.b, scale.b), rstd, hn::MulAdd(value.b, factor, constant))};
      if (args.with_residual) {
        const Pair added = part.load(args.dsum.as<T>() + at);
        dx = {hn::Add(dx.a, added.a), hn::Add(dx.b, added.b)};
      }
      if constexpr (kStream) {
        part.stream(dx, args.dx.as<T>() + at);
      } else {
        part.store(dx, args.dx.as<T>() + at);
      }
    }
  });
}

// In parts: stores a rank's sums, or loads those of all ranks.
template <bool kLayer, std::size_t kRows>
void exchange_sums(const NormBackward& args, std::size_t row, RowValues<kRows>& values) {
  float* sums = args.sums.as<float>() + row * (kLayer ? 2 : 1);
  const auto exchange = [&](float& sum, float& value) {
    const bool stores = args.part == NormPart::sums;
    (stores ? sum : value) = stores ? value : sum;
  };
  for (std::size_t r = 0; r < kRows; ++r) {
    if constexpr (kLayer) exchange(*sums++, values.mean[r]);
    exchange(*sums++, values.slope[r]);
  }
}

template <bool kStream, bool kLayer, std::size_t kRows, class T>
void backward_group(const NormBackward& args, std::size_t row, const BlockSums& block) {
  RowValues<kRows> values{};
  for (std::size_t r = 0; r < kRows; ++r) {
    values.rstd[r] = args.rstd.as<float>()[row + r];
    if constexpr (kLayer) values.shift[r] = -args.mean.as<float>()[row + r] * values.rstd[r];
  }
  if (args.part != NormPart::rest) add_row_sums<kStream, kLayer, kRows, T>(args, row, values, block);
  if (args.part != NormPart::whole) exchange_sums<kLayer, kRows>(args, row, values);
  if (args.part != NormPart::sums) write_rows<kStream, kRows, T>(args, row, values);
}

template <bool kStream, bool kLayer, class T>
void backward_rows(const NormBackward& args, const BlockSums& block, std::int64_t begin, std::int64_t end) {
  constexpr std::size_t kGroup = 8 / sizeof(T);  // these rows and the next ones fit in the L1 cache
  for_row_groups<kGroup>(static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
                         static_cast<std::size_t>(args.columns),
                         [&](auto row, auto rows) { backward_group<kStream, kLayer, rows(), T>(args, row, block); });
  if constexpr (kStream) hwy::FlushStream();
}

template <bool kLayer, class T>
void backward_of(const NormBackward& args, bool stream, const BlockSums& block, std::int64_t begin, std::int64_t end) {
  if (stream && rows_are_aligned(args.dx.as<T>(), static_cast<std::size_t>(args.columns))) {
    return backward_rows<true, kLayer, T>(args, block, begin, end);
  }
  backward_rows<false, kLayer, T>(args, block, begin, end);
}

// Computes a block of rows. Its sums are written at `sums`: dgamma's, then dbeta's.
void backward(const NormBackward& args, bool stream, float* sums, std::int64_t begin, std::int64_t end) {
  const bool layer = args.norm == Norm::layer;
  const std::size_t elems = sum_elems(args.columns);
  std::fill_n(sums, layer ? 2 * elems : elems, 0.0F);
  const BlockSums block{sums, layer ? sums + elems : nullptr};
  with_activation_type(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (layer) return backward_of<true, T>(args, stream, block, begin, end);
    backward_of<false, T>(args, stream, block, begin, end);
  });
}

// Adds the sums of all blocks, which lie `stride` floats apart, to total[c] for the pairs of columns in [begin, end).
template <class T>
void add_sums(const float* sums, std::int64_t num_blocks, std::size_t stride, float* total, std::size_t begin,
              std::size_t end) {
  HWY_ALIGN float ordered[2 * HWY_MAX_BYTES / sizeof(float)];
  for (std::size_t c = begin; c < end; c += pair_elems()) {
    Pair sum = load_pair(sums + c);
    for (std::int64_t b = 1; b < num_blocks; ++b) {
      const Pair more = load_pair(sums + static_cast<std::size_t>(b) * stride + c);
      sum = {hn::Add(sum.a, more.a), hn::Add(sum.b, more.b)};
    }
    store_in_order<T>(sum, ordered);
    const std::size_t elems = std::min(pair_elems(), end - c);
    for (std::size_t i = 0; i < elems; ++i) total[c + i] += ordered[i];
  }
}

void finish(const NormBackward& args, const float* sums, std::int64_t num_blocks, std::int64_t begin,
            std::int64_t end) {
  const std::size_t elems = sum_elems(args.columns);
  const bool layer = args.norm == Norm::layer;
  const std::size_t stride = layer ? 2 * elems : elems;
  const auto from = static_cast<std::size_t>(begin);
  const auto to = static_cast<std::size_t>(end);
  with_activation_type(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    add_sums<T>(sums, num_blocks, stride, args.dgamma.as<float>(), from, to);
    if (layer) add_sums<T>(sums + elems, num_blocks, stride, args.dbeta.as<float>(), from, to);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(sum_elems);
HWY_EXPORT(backward);
HWY_EXPORT(finish);

// At least 64 rows per block, so that a block's sums are small compared with its rows; at most 64 blocks, so that
// adding them up is cheap, too.
std::int64_t rows_of_block(std::int64_t rows) {
  constexpr std::int64_t kLeastRows = 64;
  constexpr std::int64_t kMostBlocks = 64;
  const std::int64_t even = (rows + kMostBlocks - 1) / kMostBlocks;
  return std::max(kLeastRows, (even + 3) / 4 * 4);
}

}  // namespace

// FLOPs per row of C columns. LayerNorm: 2 C for the normalised x, C for its gradient, 3 C and 2 divisions for the mean
// and slope of that gradient, 4 C for dx, 2 C for dgamma, C for dbeta. RMSNorm: C, C, 2 C and a division, 3 C, 2 C. The
// residual adds C.
Cost cost_of(const NormBackward& args) {
  const auto columns = static_cast<double>(args.columns);
  const bool layer = args.norm == Norm::layer;
  double row_flops = layer ? 13 * columns + 2 : 9 * columns + 1;
  if (args.part == NormPart::sums) row_flops = (layer ? 9 : 7) * columns;
  if (args.part == NormPart::rest) row_flops = (layer ? 7 * columns + 2 : 5 * columns + 1);
  if (args.with_residual && args.part != NormPart::sums) row_flops += columns;
  return cost_of_operands(static_cast<double>(args.rows) * row_flops, args);
}

void run_cpu(const NormBackward& args, ThreadPool& pool) {
  const bool stream =
      args.part == NormPart::whole && pool.kept<Caches>().outgrown_by(size_bytes(args.dx.dtype, args.dx.elems));
  const std::int64_t rows = rows_of_block(args.rows);
  const std::int64_t num_blocks = (args.rows + rows - 1) / rows;
  const std::size_t stride = (args.norm == Norm::layer ? 2 : 1) * HWY_DYNAMIC_DISPATCH(sum_elems)(args.columns);
  float* sums = pool.scratch_of<float>(-1, static_cast<std::size_t>(num_blocks) * stride).data();
  // Each thread takes consecutive blocks, because it prefetches rows beyond the end of a block.
  pool.for_ranges(num_blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      float* block_sums = sums + static_cast<std::size_t>(block) * stride;
      const std::int64_t end = std::min(args.rows, (block + 1) * rows);
      HWY_DYNAMIC_DISPATCH(backward)(args, stream, block_sums, block * rows, end);
    }
  });
  if (args.part == NormPart::rest) return;
  constexpr std::int64_t kGrain = 512;  // columns; a multiple of the vector pairs of every instruction set
  pool.for_ranges(args.columns, kGrain, [&](auto begin, auto end) {
    HWY_DYNAMIC_DISPATCH(finish)(args, sums, num_blocks, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
