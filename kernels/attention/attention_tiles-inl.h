// Tiles of attention: products of matrices, packing, the parts of products that a causal mask leaves, masks; for
// sources that use Highway: included once per target.
#if defined(LOCKSTEP_KERNELS_ATTENTION_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_ATTENTION_ATTENTION_TILES_INL_H_
#undef LOCKSTEP_KERNELS_ATTENTION_ATTENTION_TILES_INL_H_
#else
#define LOCKSTEP_KERNELS_ATTENTION_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/attention/attention_pieces.h"
#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Products of small f32 matrices in the caches. A block of the result stays in registers for the whole depth: six rows
// by four vectors with 32 registers, by two with 16.

constexpr int kBlockRows = 6;
constexpr int kBlockVectors = HWY_MAX_BYTES >= 64 ? 4 : 2;

// The left factor, whose element (r, k) is at data[r * row + k * step]: plain or transposed.
struct Left {
  const float* data;
  std::size_t row;
  std::size_t step;
};
// The right factor and the result: consecutive rows.
struct Right {
  const float* data;
  std::size_t row;
};
struct Result {
  float* data;
  std::size_t row;
};

// The part of a block of rows that must be computed: columns from `first_column` on, a multiple of the vector, and
// depths in [depth_begin, depth_end).
struct Part {
  std::size_t first_column;
  std::size_t depth_begin;
  std::size_t depth_end;
};

template <bool kAdd, int kRows, int kVectors>
HWY_INLINE void multiply_block(const Left& left, const Right& right, const Result& result, const Part& part) {
  const F32 d;
  const std::size_t lanes = lanes_f32();
  VF32 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* const at = result.data + static_cast<std::size_t>(r) * result.row + static_cast<std::size_t>(v) * lanes;
      sums[r][v] = kAdd ? hn::LoadU(d, at) : hn::Zero(d);
    }
  }
  const float* a = left.data + part.depth_begin * left.step;
  const float* b = right.data + part.depth_begin * right.row;
  for (std::size_t k = part.depth_begin; k < part.depth_end; ++k, a += left.step, b += right.row) {
    VF32 columns[kVectors];
    for (int v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(d, b + static_cast<std::size_t>(v) * lanes);
    for (int r = 0; r < kRows; ++r) {
      const VF32 factor = hn::Set(d, a[static_cast<std::size_t>(r) * left.row]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(factor, columns[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* const at = result.data + static_cast<std::size_t>(r) * result.row + static_cast<std::size_t>(v) * lanes;
      hn::StoreU(sums[r][v], d, at);
    }
  }
}

// Computes columns [first_column, columns) of some rows, in blocks of as many vectors as fit in registers.
template <bool kAdd, int kRows, int kVectors = kBlockVectors>
void multiply_rows(const Left& left, const Right& right, const Result& result, std::size_t columns, const Part& part) {
  const std::size_t width = static_cast<std::size_t>(kVectors) * lanes_f32();
  std::size_t c = part.first_column;
  for (; c + width <= columns; c += width) {
    multiply_block<kAdd, kRows, kVectors>(left, {right.data + c, right.row}, {result.data + c, result.row}, part);
  }
  if constexpr (kVectors > 1) {
    if (c >= columns) return;
    Part rest = part;
    rest.first_column = c;
    multiply_rows<kAdd, kRows, kVectors - 1>(left, right, result, columns, rest);
  }
}

template <bool kAdd, int kRows = kBlockRows>
void multiply_last_rows(std::size_t rows, const Left& left, const Right& right, const Result& result,
                        std::size_t columns, const Part& part) {
  if (rows == static_cast<std::size_t>(kRows)) {
    multiply_rows<kAdd, kRows>(left, right, result, columns, part);
  } else if constexpr (kRows > 1) {
    multiply_last_rows<kAdd, kRows - 1>(rows, left, right, result, columns, part);
  }
}

// Computes result (+)= left * right. `columns` is a multiple of the vector; part_of(begin, end) returns the part that
// is needed of the rows [begin, end).
template <bool kAdd, class PartOf>
HWY_INLINE void multiply(const Left& left, const Right& right, const Result& result, std::size_t rows,
                         std::size_t columns, const PartOf& part_of) {
  for (std::size_t r = 0; r < rows; r += kBlockRows) {
    const std::size_t some = std::min(rows - r, static_cast<std::size_t>(kBlockRows));
    multiply_last_rows<kAdd>(some, {left.data + r * left.row, left.row, left.step}, right,
                             {result.data + r * result.row, result.row}, columns, part_of(r, r + some));
  }
}

// Tiles of attention.

constexpr auto kTileRow = static_cast<std::size_t>(kTile);

inline std::size_t whole_vectors(std::size_t count) {
  return (count + lanes_f32() - 1) / lanes_f32() * lanes_f32();
}

// Vectors of a head, one every `stride` elements.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  T* row(std::int64_t r) const { return data + r * stride; }
};
// The vectors of a head in an array of queries or its gradient; in o or its gradient; in keys, values or their
// gradients.
template <class T>
HWY_INLINE HeadRows<T> query_rows(T* data, const AttentionShape& shape, const QueryHead& of) {
  return {data + of.batch * shape.queries * shape.stride() + of.head * shape.head_columns, shape.stride()};
}
template <class T>
HWY_INLINE HeadRows<T> packed_rows(T* data, const AttentionShape& shape, const QueryHead& of) {
  return {data + of.batch * shape.queries * shape.row() + of.head * shape.head_columns, shape.row()};
}
template <class T>
HWY_INLINE HeadRows<T> key_rows(T* data, const AttentionShape& shape, const AttentionPiece& piece) {
  const std::int64_t stride = shape.key_stride();
  return {data + piece.batch * shape.keys * stride + piece.key_head * shape.head_columns, stride};
}
inline float* lse_of(float* lse, const AttentionShape& shape, const QueryHead& of) {
  return lse + (of.batch * shape.heads + of.head) * shape.queries;
}
inline const float* lse_of(const float* lse, const AttentionShape& shape, const QueryHead& of) {
  return lse + (of.batch * shape.heads + of.head) * shape.queries;
}

// Copies rows to f32, padded with zeros to whole vectors.
template <class T>
void pack_rows(const HeadRows<const T>& from, std::int64_t rows, std::size_t columns, float* to, std::size_t to_row) {
  const std::size_t lanes = lanes_f32();
  for (std::int64_t r = 0; r < rows; ++r, to += to_row) {
    const T* const row = from.row(r);
    std::size_t c = 0;
    for (; c + lanes <= columns; c += lanes) store(load(row + c), to + c);
    if (c < columns) store(load_tail(row + c, columns - c), to + c);
  }
}

// Stores factor times rows, rounded to T.
template <class T>
void unpack_rows(const float* from, std::size_t from_row, std::int64_t rows, std::size_t columns, float factor,
                 const HeadRows<T>& to) {
  const VF32 by = hn::Set(F32(), factor);
  const std::size_t lanes = lanes_f32();
  for (std::int64_t r = 0; r < rows; ++r, from += from_row) {
    T* const row = to.row(r);
    std::size_t c = 0;
    for (; c + lanes <= columns; c += lanes) store(hn::Mul(by, load(from + c)), row + c);
    if (c < columns) store_tail(hn::Mul(by, load(from + c)), row + c, columns - c);
  }
}

// Stores factor times four packed rows as four columns of a tile.
HWY_INLINE void transpose_four(const float* rows, std::size_t row, std::size_t columns, float factor, float* to) {
  const F32 d;
  const VF32 by = hn::Set(d, factor);
  const std::size_t lanes = lanes_f32();
  HWY_ALIGN float fours[std::size_t{4} * HWY_MAX_BYTES / sizeof(float)];
  for (std::size_t c = 0; c < columns; c += lanes) {
    hn::StoreInterleaved4(hn::Mul(by, load(rows + c)), hn::Mul(by, load(rows + row + c)),
                          hn::Mul(by, load(rows + 2 * row + c)), hn::Mul(by, load(rows + 3 * row + c)), d, fours);
    const std::size_t some = std::min(lanes, columns - c);
    for (std::size_t l = 0; l < some; ++l) std::memcpy(to + (c + l) * kTileRow, fours + 4 * l, 4 * sizeof(float));
  }
}

// Transposes a tile of packed rows to [columns, kTile]. Rows past the last, up to whole fours and vectors, become
// zeros.
inline void transpose_tile(float* rows, std::size_t row, std::int64_t num_rows, std::size_t columns, float factor,
                           float* to) {
  const std::size_t have = static_cast<std::size_t>(num_rows);
  const std::size_t all = std::max(whole_vectors(have), (have + 3) / 4 * 4);
  std::fill(rows + have * row, rows + all * row, 0.0F);
  for (std::size_t r = 0; r < all; r += 4) transpose_four(rows + r * row, row, columns, factor, to + r);
}

// Which part of a product is needed for the rows [begin, end) of a tile pair's result. Rows are keys and columns are
// queries: the queries from the first that sees any of these keys on.
struct ScorePart {
  const TilePair& pair;
  std::size_t depth;
  Part operator()(std::size_t begin, std::size_t /*end*/) const {
    const std::int64_t first = std::max<std::int64_t>(static_cast<std::int64_t>(begin) - pair.shift, 0);
    return {static_cast<std::size_t>(first) / lanes_f32() * lanes_f32(), 0, depth};
  }
};
// Rows are queries and the depth is keys: the keys up to the last that any of these queries sees.
struct QueryPart {
  const TilePair& pair;
  Part operator()(std::size_t /*begin*/, std::size_t end) const {
    const std::int64_t seen = std::clamp<std::int64_t>(static_cast<std::int64_t>(end) + pair.shift, 0, pair.num_keys);
    return {0, 0, static_cast<std::size_t>(seen)};
  }
};
// Rows are keys and the depth is queries: the queries from the first that sees any of these keys on.
struct KeyPart {
  const TilePair& pair;
  Part operator()(std::size_t begin, std::size_t /*end*/) const {
    const std::int64_t first =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(begin) - pair.shift, 0, pair.num_queries);
    return {0, static_cast<std::size_t>(first), static_cast<std::size_t>(pair.num_queries)};
  }
};

// For a vector of queries from `column` on: all see the keys [0, all), some the keys [all, some).
struct SeenKeys {
  std::size_t all;
  std::size_t some;
};
HWY_INLINE SeenKeys seen_keys(const TilePair& pair, std::size_t column) {
  const std::int64_t first = static_cast<std::int64_t>(column) + pair.shift;
  const auto last = first + static_cast<std::int64_t>(lanes_f32()) - 1;
  const auto keys_to = [&](std::int64_t key) {
    return static_cast<std::size_t>(std::clamp<std::int64_t>(key + 1, 0, pair.num_keys));
  };
  return {keys_to(first), keys_to(last)};
}

// Returns which queries of the vector see a key.
HWY_INLINE auto sees(const TilePair& pair, std::size_t column, std::size_t key) {
  const F32 d;
  const VF32 queries = hn::Iota(d, static_cast<float>(column));
  return hn::Ge(queries, hn::Set(d, static_cast<float>(static_cast<std::int64_t>(key) - pair.shift)));
}

// Below every score but -infinity: the initial maximum, from which -infinity can be subtracted without a NaN.
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Returns the largest score of each query in a vector; scores that a query does not see become -infinity.
HWY_INLINE VF32 max_of_column(float* scores, const TilePair& pair, std::size_t column, const SeenKeys& seen, VF32 max) {
  float* at = scores + column;
  for (std::size_t j = 0; j < seen.all; ++j, at += kTileRow) max = hn::Max(max, load(at));
  for (std::size_t j = seen.all; j < seen.some; ++j, at += kTileRow) {
    const VF32 score = hn::IfThenElse(sees(pair, column, j), load(at), hn::Neg(hn::Inf(F32())));
    store(score, at);
    max = hn::Max(max, score);
  }
  return max;
}

// Writes o and log-sum-exp of a query tile, whose rows in memory are `row` elements apart.
template <class T>
void finish_rows(const AttentionForward& args, const QueryHead& of, const ForwardMemory& tile, std::int64_t first_query,
                 std::int64_t num_queries, std::size_t row) {
  const AttentionShape& shape = args.shape;
  const auto o = packed_rows(args.o.as<T>(), shape, of);
  float* const lse = lse_of(args.lse.as<float>(), shape, of) + first_query;
  for (std::int64_t i = 0; i < num_queries; ++i) {
    unpack_rows(tile.o + static_cast<std::size_t>(i) * row, row, 1, static_cast<std::size_t>(shape.head_columns),
                1 / tile.sum[i], HeadRows<T>{o.row(first_query + i), 0});
    lse[i] = tile.max[i] + std::log(tile.sum[i]);
  }
}

// delta[i] = o[i] . d_o[i], which is subtracted from every weight's gradient (Dao 2022, section B.4).
template <class T>
float delta_of(const T* o, const T* d_o, std::size_t columns) {
  const F32 d;
  const std::size_t lanes = lanes_f32();
  VF32 sum = hn::Zero(d);
  std::size_t c = 0;
  for (; c + lanes <= columns; c += lanes) sum = hn::MulAdd(load(o + c), load(d_o + c), sum);
  if (c < columns) sum = hn::MulAdd(load_tail(o + c, columns - c), load_tail(d_o + c, columns - c), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
