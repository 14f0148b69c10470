#include "kernels/fp8/fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/base/element_types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fp8/fp8.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

using DI32 = hn::RebindToSigned<F32>;

// Of |x|, whose bits as integers are ordered as the numbers, infinity and then NaN last.
HWY_INLINE hn::Vec<DI32> magnitude_bits(VF32 x) {
  return hn::And(hn::BitCast(DI32(), x), hn::Set(DI32(), 0x7fffffff));
}

// The larger of `largest` and all |x|.
template <class T>
HWY_ATTR void largest_of(const T* x, std::size_t count, float* largest) {
  const DI32 d;
  hn::Vec<DI32> a = magnitude_bits(hn::Set(F32(), *largest));
  hn::Vec<DI32> b = a;
  for_pairs<T>(count, [&](std::size_t i, auto part) HWY_ATTR {
    const Pair p = part.load(x + i);
    a = hn::Max(a, magnitude_bits(p.a));
    b = hn::Max(b, magnitude_bits(p.b));
  });
  *largest = hn::GetLane(hn::BitCast(F32(), hn::MaxOfLanes(d, hn::Max(a, b))));
}

// The same of each element by itself.
template <class T>
HWY_ATTR void largest_of_each(const T* x, std::size_t count, float* largest) {
  for_pairs<T>(count, [&](std::size_t i, auto part) HWY_ATTR {
    HWY_ALIGN float before[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
    const std::size_t elems = count - i < pair_elems() ? count - i : pair_elems();
    std::memcpy(before, largest + i, elems * sizeof(float));
    const Pair p = part.load(x + i);
    const Pair old = load_in_order<T>(before);
    const Pair most{hn::BitCast(F32(), hn::Max(magnitude_bits(p.a), magnitude_bits(old.a))),
                    hn::BitCast(F32(), hn::Max(magnitude_bits(p.b), magnitude_bits(old.b)))};
    store_in_order<T>(most, before);
    std::memcpy(largest + i, before, elems * sizeof(float));
  });
}

// What is finite and above the format's largest number becomes that.
HWY_INLINE VF32 saturated(VF32 x, float largest) {
  const F32 d;
  const VF32 most = hn::Set(d, largest);
  const VF32 magnitude = hn::Abs(x);
  const auto is_above =
      hn::And(hn::Gt(magnitude, most), hn::Le(magnitude, hn::Set(d, std::numeric_limits<float>::max())));
  return hn::IfThenElse(is_above, hn::CopySign(most, x), x);
}

// codes = x * inverse, one for all or one each.
template <class T, class Code>
HWY_ATTR void encode(const T* x, Code* codes, std::size_t count, const float* inverse, bool one_each, float largest) {
  const F32 d;
  const std::size_t step = pair_elems();
  for (std::size_t i = 0; i < count; i += step) {
    const std::size_t elems = count - i < step ? count - i : step;
    HWY_ALIGN T from[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
    HWY_ALIGN float factors[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
    Pair factor{hn::Set(d, *inverse), hn::Set(d, *inverse)};
    if (one_each) {
      std::memcpy(factors, inverse + i, elems * sizeof(float));
      factor = {hn::Load(d, factors), hn::Load(d, factors + lanes_f32())};
    }
    const bool whole = elems == step;
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
    largest_of(from, elems, largest);
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
constexpr std::int64_t kTurn = 64;  // rows and columns of x that are turned at once

// The blocks of a kernel's grid as they lie on x, which may be transposed.
struct Blocks {
  Blocks(const ScaleGrid& grid, bool transposed)
      : rows(transposed ? grid.columns : grid.rows),
        columns(transposed ? grid.rows : grid.columns),
        block_rows(transposed ? grid.block_columns : grid.block_rows),
        block_columns(transposed ? grid.block_rows : grid.block_columns),
        row_step(transposed ? 1 : grid.across()),
        column_step(transposed ? grid.across() : 1) {}

  // Neighbours in a row of x have neighbouring scales.
  bool one_each() const { return block_columns == 1 && column_step == 1; }
  std::int64_t index(std::int64_t row, std::int64_t column) const {
    return row / block_rows * row_step + column / block_columns * column_step;
  }
  // Calls visit(column, count, index) for the parts of a row, within [begin, end), that have scales of their own, or
  // one part where each element has.
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
  std::int64_t row_step;  // of blocks' numbers
  std::int64_t column_step;
};

// Maxima do not depend on the order in which threads come.
void raise(float& to, float value) {
  const auto bits_of = [](float x) { return std::bit_cast<std::uint32_t>(x); };  // of what has no sign; NaN last
  std::atomic_ref<float> most(to);
  float known = most.load(std::memory_order_relaxed);
  while (bits_of(known) < bits_of(value) && !most.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
  }
}

void find_largest(const Fp8Encode& args, const Blocks& blocks, ThreadPool& pool) {
  float* const largest = args.largest_so_far();
  if (!args.delayed) std::fill_n(largest, args.blocks(), 0.0F);
  if (blocks.one_each()) {
    pool.for_ranges(blocks.columns, kColumnGrain, [&](auto begin, auto end) {
      for (std::int64_t row = 0; row < blocks.rows; ++row) {
        HWY_DYNAMIC_DISPATCH(largest_elems)
        (args.x.dtype, args.x.data, row * blocks.columns + begin, end - begin, largest + blocks.index(row, begin),
         true);
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
        raise(largest[index], most);
      });
    }
  });
}

// Rows [row, last) and columns [column, end) of x, turned by way of a buffer.
void encode_turned(const Fp8Encode& args, const Blocks& blocks, const float* inverses, std::int64_t row,
                   std::int64_t last, std::int64_t column, std::int64_t end) {
  std::array<std::array<std::uint8_t, kTurn>, kTurn> codes;
  for (std::int64_t r = row; r < last; ++r) {
    auto& of_row = codes.at(static_cast<std::size_t>(r - row));
    blocks.for_parts(r, column, end, [&](std::int64_t at, std::int64_t count, std::int64_t index) {
      HWY_DYNAMIC_DISPATCH(encode_elems)
      (args, r * blocks.columns + at, count, inverses + index, blocks.one_each(), of_row.data() + (at - column));
    });
  }
  for (std::int64_t c = column; c < end; ++c) {
    std::uint8_t* const to = static_cast<std::uint8_t*>(args.codes.data) + c * blocks.rows;
    for (std::int64_t r = row; r < last; ++r) {
      to[r] = codes[static_cast<std::size_t>(r - row)][static_cast<std::size_t>(c - column)];
    }
  }
}

void encode_all(const Fp8Encode& args, const Blocks& blocks, const float* inverses, ThreadPool& pool) {
  if (args.transposed) {
    pool.for_ranges(blocks.columns, kTurn, [&](auto begin, auto end) {
      for (std::int64_t column = begin; column < end; column += kTurn) {
        for (std::int64_t row = 0; row < blocks.rows; row += kTurn) {
          encode_turned(args, blocks, inverses, row, std::min(row + kTurn, blocks.rows), column,
                        std::min<std::int64_t>(column + kTurn, end));
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
        (args, at, count, inverses + index, blocks.one_each(), static_cast<std::uint8_t*>(args.codes.data) + at);
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
  check_at_least(name(), "rows", rows, 1);
  check_at_least(name(), "columns", columns, 1);
  check_fp8(name(), "to", to);
}

void Fp8Decode::check_shape() const {
  check_at_least(name(), "rows", rows, 1);
  check_at_least(name(), "columns", columns, 1);
  check_fp8(name(), "from", from);
}

Cost cost_of(const Fp8Encode& args) {
  return {static_cast<double>(args.rows * args.columns), operand_bytes(args), ""};
}

Cost cost_of(const Fp8Decode& args) {
  return {static_cast<double>(args.rows * args.columns), operand_bytes(args), ""};
}

void run_cpu(const Fp8Encode& args, ThreadPool& pool) {
  const Blocks blocks(scale_grid(args.per, args.rows, args.columns), args.transposed);
  find_largest(args, blocks, pool);
  const auto num_scales = static_cast<std::size_t>(args.blocks());
  const std::span<float> inverses = pool.scratch_of<float>(-1, num_scales);
  const float* const now = args.largest_so_far();
  const float* const previous = args.delayed ? args.previous.as<float>() : now;
  for (std::size_t i = 0; i < num_scales; ++i) {
    const bool has_history = previous[i] > 0 && std::isfinite(previous[i]);
    const float scale = fp8_scale(has_history ? previous[i] : now[i], args.to);
    args.scales.as<float>()[i] = scale;
    inverses[i] = 1 / scale;
  }
  encode_all(args, blocks, inverses.data(), pool);
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
