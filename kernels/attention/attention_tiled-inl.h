// Packing of bf16 for a unit of tiles, and the parts of products that a causal mask leaves; for sources that use
// Highway: included once per target.
#if defined(LOCKSTEP_KERNELS_ATTENTION_ATTENTION_TILED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_ATTENTION_ATTENTION_TILED_INL_H_
#undef LOCKSTEP_KERNELS_ATTENTION_ATTENTION_TILED_INL_H_
#else
#define LOCKSTEP_KERNELS_ATTENTION_ATTENTION_TILED_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention/attention_tiled.h"
#include "kernels/attention/attention_tiles-inl.h"
#include "kernels/base/vector_results-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using core::BFloat16;

// Packs `num_rows` rows from `first` on, and pads with zeros to whole blocks of columns and to `all_rows`.
inline void pack_bf16_rows(const HeadRows<const BFloat16>& from, std::int64_t first, std::int64_t num_rows,
                           std::int64_t all_rows, std::int64_t head_columns, BFloat16* to) {
  const auto row = static_cast<std::size_t>(whole_blocks(head_columns));
  const auto columns = static_cast<std::size_t>(head_columns);
  for (std::int64_t r = 0; r < num_rows; ++r, to += row) {
    std::memcpy(to, from.row(first + r), columns * sizeof(BFloat16));
    std::fill(to + columns, to + row, BFloat16{});
  }
  std::fill_n(to, static_cast<std::size_t>(all_rows - num_rows) * row, BFloat16{});
}

// Turns rows [rows][columns] into pairs [rows / 2][columns][2].
HWY_INLINE void pair_rows(const BFloat16* from, std::int64_t rows, std::int64_t columns, BFloat16* to) {
  const hn::ScalableTag<std::uint16_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto row = static_cast<std::size_t>(columns);
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
  auto* pairs = reinterpret_cast<std::uint16_t*>(to);
  for (std::int64_t r = 0; r < rows; r += 2, bits += 2 * row, pairs += 2 * row) {
    for (std::size_t c = 0; c < row; c += lanes) {
      hn::StoreInterleaved2(hn::LoadU(d, bits + c), hn::LoadU(d, bits + row + c), d, pairs + 2 * c);
    }
  }
}

// Transposes [rows][columns] of 32 bits each to [columns][rows]; rows and columns are multiples of 16, and the result's
// rows are `to_row` apart.
template <class T>
HWY_INLINE void transpose_words(const T* from, std::int64_t rows, std::int64_t columns, T* to, std::int64_t to_row) {
  constexpr std::size_t kWord = sizeof(std::uint32_t) / sizeof(T);  // elements per word
  const U32 d;
  const std::size_t lanes = hn::Lanes(d);
  const auto row = static_cast<std::size_t>(columns);
  const auto* words = reinterpret_cast<const std::uint32_t*>(from);
  HWY_ALIGN std::uint32_t fours[std::size_t{4} * HWY_MAX_BYTES / sizeof(std::uint32_t)];
  for (std::int64_t r = 0; r < rows; r += 4, words += 4 * row) {
    for (std::size_t c = 0; c < row; c += lanes) {
      hn::StoreInterleaved4(hn::LoadU(d, words + c), hn::LoadU(d, words + row + c), hn::LoadU(d, words + 2 * row + c),
                            hn::LoadU(d, words + 3 * row + c), d, fours);
      for (std::size_t l = 0; l < lanes; ++l) {
        const std::size_t at = (c + l) * static_cast<std::size_t>(to_row) + static_cast<std::size_t>(r);
        std::memcpy(to + at * kWord, fours + 4 * l, 4 * sizeof(std::uint32_t));
      }
    }
  }
}

// Turns a tile of rows into pairs of columns: [columns / 2][kTile][2].
HWY_INLINE void pair_columns(const BFloat16* rows, std::int64_t columns, BFloat16* to) {
  transpose_words(rows, kTile, columns / 2, to, kTile);
}
// Transposes a tile of rows: [columns][kTile].
HWY_INLINE void transpose_bf16(const BFloat16* rows, std::int64_t columns, BFloat16* pairs, BFloat16* to) {
  pair_rows(rows, kTile, columns, pairs);
  transpose_words(pairs, kTile / 2, columns, to, kTile / 2);
}

// The part of a product with the columns [begin, ...) of the right factor and the result, and with depths [begin, ...).
inline TileProduct from_column(TileProduct product, std::int64_t begin) {
  product.b += 2 * begin;
  product.c += begin;
  product.columns -= begin;
  return product;
}
inline TileProduct from_row(TileProduct product, std::int64_t begin) {
  product.a += begin * product.a_row;
  product.c += begin * product.c_row;
  product.rows -= begin;
  return product;
}
inline TileProduct of_depths(TileProduct product, std::int64_t begin, std::int64_t end) {
  product.a += begin;
  product.b += begin / 2 * product.b_row;
  product.depth = end - begin;
  return product;
}

// Products of a tile pair, block by block, without the parts that no query sees. Here rows are keys and columns
// queries:
inline void multiply_scores(TileMultiplier& tiles, const TilePair& pair, const TileProduct& whole) {
  if (!pair.cut()) return tiles.multiply(whole);
  for (std::int64_t row = 0; row < whole.rows; row += kTileBlock) {
    const std::int64_t first = std::max<std::int64_t>(row - pair.shift, 0) / kTileBlock * kTileBlock;
    if (first >= whole.columns) break;
    TileProduct part = from_column(from_row(whole, row), first);
    part.rows = kTileBlock;
    tiles.multiply(part);
  }
}
// here columns are queries, and depths keys:
inline void multiply_queries(TileMultiplier& tiles, const TilePair& pair, const TileProduct& whole) {
  if (!pair.cut()) return tiles.multiply(whole);
  for (std::int64_t column = 0; column < whole.columns; column += kTileBlock) {
    const std::int64_t seen = std::clamp<std::int64_t>(column + kTileBlock + pair.shift, 0, whole.depth);
    TileProduct part = of_depths(from_column(whole, column), 0, whole_blocks(seen));
    part.columns = kTileBlock;
    tiles.multiply(part);
  }
}
// and here rows are keys, and depths queries.
inline void multiply_keys(TileMultiplier& tiles, const TilePair& pair, const TileProduct& whole) {
  if (!pair.cut()) return tiles.multiply(whole);
  for (std::int64_t row = 0; row < whole.rows; row += kTileBlock) {
    const std::int64_t first = std::max<std::int64_t>(row - pair.shift, 0) / kTileBlock * kTileBlock;
    if (first >= whole.depth) break;
    TileProduct part = of_depths(from_row(whole, row), first, whole.depth);
    part.rows = kTileBlock;
    tiles.multiply(part);
  }
}

// Stores two vectors of f32 from rows 2 n and 2 n + 1 as pairs, and one vector in order. Rounds as
// vector_results-inl.h.
HWY_INLINE void store_pair_of_rows(VF32 even, VF32 odd, BFloat16* to) {
  store_result(WholePair<BFloat16>(), Pair{even, odd}, to);
}
HWY_INLINE void store_rounded(VF32 value, BFloat16* to) {
  const auto bits = hn::ShiftRight<16>(nearest_bfloat16_bits(value));
  hn::StoreU(hn::TruncateTo(HalfU16(), bits), HalfU16(), bits_at(to));
}

constexpr float kLog2E = 1.44269504088896341F;

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
