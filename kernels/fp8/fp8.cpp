#include "kernels/fp8/fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fp8/fp8.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE void raise_each(Pair x, float* largest) {
  const Pair old = load_in_order<T>(largest);
  const Pair most{hn::BitCast(F32(), hn::Max(magnitude_bits(x.a), magnitude_bits(old.a))),
                  hn::BitCast(F32(), hn::Max(magnitude_bits(x.b), magnitude_bits(old.b)))};
  store_in_order<T>(most, largest);
}

// Raises each element of `largest` to |x|.
template <class T>
HWY_ATTR void largest_of_each(const T* x, std::size_t count, float* largest) {
  const std::size_t step = pair_elems();
  std::size_t i = 0;
  for (; i + step <= count; i += step) raise_each<T>(load_pair(x + i), largest + i);
  if (i == count) return;
  HWY_ALIGN float last[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(last, largest + i, (count - i) * sizeof(float));
  raise_each<T>(load_pair_tail(x + i, count - i), last);
  std::memcpy(largest + i, last, (count - i) * sizeof(float));
}

// Finite values above the format's largest number become that number.
HWY_INLINE VF32 saturated(VF32 x, float largest) {
  const F32 d;
  const VF32 most = hn::Set(d, largest);
  const VF32 magnitude = hn::Abs(x);
  const auto is_above =
      hn::And(hn::Gt(magnitude, most), hn::Le(magnitude, hn::Set(d, std::numeric_limits<float>::max())));
  return hn::IfThenElse(is_above, hn::CopySign(most, x), x);
}

// Sets codes = x * inverse, with one inverse for all or one for each.
template <class T, class Code>
HWY_ATTR void encode(const T* x, Code* codes, std::size_t count, const float* inverse, bool one_each, float largest) {
  const F32 d;
  const std::size_t step = pair_elems();
  for (std::size_t i = 0; i < count; i += step) {
    const std::size_t elems = count - i < step ? count - i : step;
    HWY_ALIGN T from[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
    HWY_ALIGN float factors[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
    const bool whole = elems == step;
    Pair factor{hn::Set(d, *inverse), hn::Set(d, *inverse)};
    if (one_each) {
      if (!whole) std::memcpy(factors, inverse + i, elems * sizeof(float));
      const float* const own = whole ? inverse + i : static_cast<const float*>(factors);
      factor = {hn::LoadU(d, own), hn::LoadU(d, own + lanes_f32())};
    }
    if (!whole) std::memcpy(from, x + i, elems * sizeof(T));
    const Pair in = load_ordered(whole ? x + i : static_cast<const T*>(from));
    const Pair out{saturated(hn::Mul(in.a, factor.a), largest), saturated(hn::Mul(in.b, factor.b), largest)};
    if (whole) {
      store_pair(out, codes + i);
    } else {
      store_pair_tail(out, codes + i, elems);
    }
  }
}

void largest_elems(core::DType dtype, const void* x, std::int64_t begin, std::int64_t count, float* largest,
                   bool one_each) {
  with_activation_type(dtype, [&](auto zero) {
    const auto* from = static_cast<const decltype(zero)*>(x) + begin;
    const auto elems = static_cast<std::size_t>(count);
    if (one_each) return largest_of_each(from, elems, largest);
    *largest = largest_magnitude(I32(), from, elems);
  });
}

void encode_elems(const Fp8Encode& args, std::int64_t begin, std::int64_t count, const float* inverse, bool one_each,
                  void* codes) {
  with_activation_type(args.x.dtype, [&](auto zero) {
    const auto* from = args.x.as<decltype(zero)>() + begin;
    const auto elems = static_cast<std::size_t>(count);
    const float largest = largest_number(args.to);
    if (args.to == core::DType::f8e4m3) {
      return encode(from, static_cast<core::Float8E4M3*>(codes), elems, inverse, one_each, largest);
    }
    encode(from, static_cast<core::Float8E5M2*>(codes), elems, inverse, one_each, largest);
  });
}

void decode_elems(const Fp8Decode& args, std::int64_t begin, std::int64_t count, float scale) {
  with_float_type(args.from, [&](auto code) {
    with_activation_type(args.y.dtype, [&](auto zero) {
      convert_elems(args.codes.as<decltype(code)>() + begin, args.y.as<decltype(zero)>() + begin,
                    static_cast<std::size_t>(count), scale);
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
HWY_EXPORT(largest_elems);
HWY_EXPORT(encode_elems);
HWY_EXPORT(decode_elems);

constexpr std::int64_t kRowGrain = 8;
constexpr std::int64_t kColumnGrain = 32;
// Rows and columns of x that are transposed at once: enough that a page (in a large matrix, each row has one or more of
// its own) is accessed again while it is still in the TLB.
constexpr std::int64_t kTurn = 256;

std::size_t elems(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

// Blocks of x, which may be transposed: numbered along each row of blocks of x.
struct Blocks {
  explicit Blocks(const Fp8Encode& args) {
    const ScaleGrid grid = scale_grid(args.per, args.rows, args.columns);
    rows = args.transposed ? grid.columns : grid.rows;
    columns = args.transposed ? grid.rows : grid.columns;
    block_rows = args.transposed ? grid.block_columns : grid.block_rows;
    block_columns = args.transposed ? grid.block_rows : grid.block_columns;
    down = args.transposed ? grid.across() : grid.down();
    across = args.transposed ? grid.down() : grid.across();
  }

  // True if each element of a row has its own scale.
  bool one_each() const { return block_columns == 1; }
  std::int64_t index(std::int64_t row, std::int64_t column) const {
    return row / block_rows * across + column / block_columns;
  }
  // Returns a block's number among the codes' blocks.
  std::int64_t number_of(std::int64_t index, bool transposed) const {
    return transposed ? index % across * down + index / across : index;
  }
  // Calls visit(column, count, index) for the parts of a row, within [begin, end), that have one scale each; a single
  // part if every element has its own scale.
  template <class Visit>
  void for_parts(std::int64_t row, std::int64_t begin, std::int64_t end, const Visit& visit) const {
    if (one_each()) return visit(begin, end - begin, index(row, begin));
    for (std::int64_t column = begin; column < end;) {
      const std::int64_t next = std::min(end, (column / block_columns + 1) * block_columns);
      visit(column, next - column, index(row, column));
      column = next;
    }
  }

  std::int64_t rows;
  std::int64_t columns;
  std::int64_t block_rows;
  std::int64_t block_columns;
  std::int64_t down;
  std::int64_t across;
};

std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
// Returns the larger magnitude; NaN is the largest.
float larger_of(float a, float b) {
  return bits_of(a) < bits_of(b) ? b : a;
}
// Maxima do not depend on the order of the threads.
void raise(float& to, float value) {
  std::atomic_ref<float> most(to);
  float known = most.load(std::memory_order_relaxed);
  while (bits_of(known) < bits_of(value) && !most.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
  }
}

// Finds the largest |x| of each block, by its index.
void find_largest(const Fp8Encode& args, const Blocks& blocks, std::span<float> largest, ThreadPool& pool) {
  std::fill(largest.begin(), largest.end(), 0.0F);
  if (blocks.one_each()) {
    pool.for_ranges(blocks.columns, kColumnGrain, [&](auto begin, auto end) {
      for (std::int64_t row = 0; row < blocks.rows; ++row) {
        HWY_DYNAMIC_DISPATCH(largest_elems)
        (args.x.dtype, args.x.data, row * blocks.columns + begin, end - begin,
         &largest[elems(blocks.index(row, begin))], true);
      }
    });
    return;
  }
  pool.for_ranges(blocks.rows, kRowGrain, [&](auto begin, auto end) {
    for (std::int64_t row = begin; row < end; ++row) {
      blocks.for_parts(row, 0, blocks.columns, [&](std::int64_t column, std::int64_t count, std::int64_t index) {
        float most = 0;
        HWY_DYNAMIC_DISPATCH(largest_elems)
        (args.x.dtype, args.x.data, row * blocks.columns + column, count, &most, false);
        raise(largest[elems(index)], most);
      });
    }
  });
}

// Writes the scale of each block, and replaces its largest |x| by the factor for x.
void make_scales(const Fp8Encode& args, const Blocks& blocks, std::span<float> largest) {
  for (std::size_t i = 0; i < largest.size(); ++i) {
    const std::int64_t number = blocks.number_of(static_cast<std::int64_t>(i), args.transposed);
    float known = largest[i];
    if (args.delayed) {
      float& raised = args.raised.as<float>()[number];
      raised = larger_of(raised, known);
      const float previous = args.previous.as<float>()[number];
      known = previous > 0 && std::isfinite(previous) ? previous : raised;
    } else {
      args.largest.as<float>()[number] = known;
    }
    const float scale = fp8_scale(known, args.to);
    args.scales.as<float>()[number] = scale;
    largest[i] = 1 / scale;
  }
}

// Swaps the bits of b in `mask` with the bits of a that are `shift` higher.
inline void swap_bits(std::uint64_t& a, std::uint64_t& b, int shift, std::uint64_t mask) {
  const std::uint64_t difference = ((a >> shift) ^ b) & mask;
  b ^= difference;
  a ^= difference << shift;
}

// Transposes an 8 x 8 matrix of bytes, one row per word (Warren, Hacker's Delight, 2nd edition, section 7-3).
void transpose(std::array<std::uint64_t, 8>& rows) {
  for (std::size_t i = 0; i < 4; ++i) swap_bits(rows[i], rows[i + 4], 32, 0x00000000ffffffffU);
  for (const std::size_t i : {0U, 1U, 4U, 5U}) swap_bits(rows[i], rows[i + 2], 16, 0x0000ffff0000ffffU);
  for (const std::size_t i : {0U, 2U, 4U, 6U}) swap_bits(rows[i], rows[i + 1], 8, 0x00ff00ff00ff00ffU);
}

using TurnedCodes = std::array<std::array<std::uint8_t, kTurn>, kTurn>;

// Sets to[c * stride + r] = codes[r][c]. Each row of `to` is written at once: rows whose distance is a power of two map
// to so few cache sets that rows written in parts would be evicted in between.
void write_turned(const TurnedCodes& codes, std::int64_t rows, std::int64_t columns, std::uint8_t* to,
                  std::int64_t stride) {
  constexpr std::size_t kWord = 8;
  TurnedCodes turned;
  for (std::size_t c = 0; c < elems(columns); c += kWord) {
    for (std::size_t r = 0; r < elems(rows); r += kWord) {
      std::array<std::uint64_t, kWord> words;
      for (std::size_t k = 0; k < kWord; ++k) std::memcpy(&words[k], &codes[r + k][c], kWord);
      transpose(words);
      for (std::size_t k = 0; k < kWord; ++k) std::memcpy(&turned[c + k][r], &words[k], kWord);
    }
  }
  for (std::int64_t c = 0; c < columns; ++c) std::memcpy(to + c * stride, turned[elems(c)].data(), elems(rows));
}

// Encodes rows and columns of x from (row, column) on through a buffer.
void encode_turned(const Fp8Encode& args, const Blocks& blocks, std::span<const float> inverses, std::int64_t row,
                   std::int64_t column, std::int64_t end) {
  TurnedCodes codes;
  const std::int64_t rows = std::min(kTurn, blocks.rows - row);
  for (std::int64_t r = 0; r < rows; ++r) {
    blocks.for_parts(row + r, column, end, [&](std::int64_t at, std::int64_t count, std::int64_t index) {
      HWY_DYNAMIC_DISPATCH(encode_elems)
      (args, (row + r) * blocks.columns + at, count, &inverses[elems(index)], blocks.one_each(),
       &codes[elems(r)][elems(at - column)]);
    });
  }
  auto* const to = static_cast<std::uint8_t*>(args.codes.data) + column * blocks.rows + row;
  write_turned(codes, rows, end - column, to, blocks.rows);
}

void encode_all(const Fp8Encode& args, const Blocks& blocks, std::span<const float> inverses, ThreadPool& pool) {
  if (args.transposed) {
    pool.for_ranges(blocks.columns, kTurn, [&](auto begin, auto end) {
      for (std::int64_t column = begin; column < end; column += kTurn) {
        const std::int64_t last = std::min<std::int64_t>(column + kTurn, end);
        for (std::int64_t row = 0; row < blocks.rows; row += kTurn) {
          encode_turned(args, blocks, inverses, row, column, last);
        }
      }
    });
    return;
  }
  pool.for_ranges(blocks.rows, kRowGrain, [&](auto begin, auto end) {
    for (std::int64_t row = begin; row < end; ++row) {
      blocks.for_parts(row, 0, blocks.columns, [&](std::int64_t column, std::int64_t count, std::int64_t index) {
        const std::int64_t at = row * blocks.columns + column;
        HWY_DYNAMIC_DISPATCH(encode_elems)
        (args, at, count, &inverses[elems(index)], blocks.one_each(), static_cast<std::uint8_t*>(args.codes.data) + at);
      });
    }
  });
}

void check_fp8(std::string_view kernel, std::string_view what, core::DType dtype) {
  if (kFp8.contains(dtype)) return;
  throw core::usage_error(fmt::format("{}: {} is {}; allowed: f8e4m3, f8e5m2", kernel, what, core::name_of(dtype)));
}

}  // namespace

float fp8_scale(float largest, core::DType fp8) {
  if (largest == 0) return 1;
  if (!std::isfinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  constexpr int kBias = 127;
  // A mantissa above 1.75 carries into the exponent.
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(largest) + 0x1fffffU;
  const int exponent = static_cast<int>(bits >> 23U) - kBias - top_exponent(fp8);
  return std::ldexp(1.0F, std::clamp(exponent, -126, 126));
}

std::string_view name_of(ScalePer per) {
  constexpr std::array<std::string_view, 4> kNames{"tensor", "row", "tile", "block"};
  return kNames[static_cast<std::size_t>(per)];
}

ScaleGrid scale_grid(ScalePer per, std::int64_t rows, std::int64_t columns) {
  switch (per) {
    case ScalePer::tensor:
      return {rows, columns, rows, columns};
    case ScalePer::row:
      return {rows, columns, 1, columns};
    case ScalePer::tile:
      return {rows, columns, 1, kScaleTile};
    case ScalePer::block:
      break;
  }
  return {rows, columns, kScaleTile, kScaleTile};
}

void Fp8Encode::check_shape() const {
  check_sizes(name(), {{"rows", rows}, {"columns", columns}});
  check_fp8(name(), "to", to);
}

void Fp8Decode::check_shape() const {
  check_sizes(name(), {{"rows", rows}, {"columns", columns}});
  check_fp8(name(), "from", from);
}

Cost cost_of(const Fp8Encode& args) {
  return cost_of_operands(static_cast<double>(args.rows * args.columns), args);
}

Cost cost_of(const Fp8Decode& args) {
  return cost_of_operands(static_cast<double>(args.rows * args.columns), args);
}

void run_cpu(const Fp8Encode& args, ThreadPool& pool) {
  const Blocks blocks(args);
  const std::span<float> numbers = pool.scratch_of<float>(-1, elems(args.blocks()));
  find_largest(args, blocks, numbers, pool);
  make_scales(args, blocks, numbers);
  encode_all(args, blocks, numbers, pool);
}

void run_cpu(const Fp8Decode& args, ThreadPool& pool) {
  const ScaleGrid grid = scale_grid(args.per, args.rows, args.columns);
  const float* const scales = args.scales.as<float>();
  pool.for_ranges(grid.rows, kRowGrain, [&](auto begin, auto end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t column = 0; column < grid.columns; column += grid.block_columns) {
        const std::int64_t count = std::min(grid.block_columns, grid.columns - column);
        const std::int64_t index = row / grid.block_rows * grid.across() + column / grid.block_columns;
        HWY_DYNAMIC_DISPATCH(decode_elems)(args, row * grid.columns + column, count, scales[index]);
      }
    }
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
