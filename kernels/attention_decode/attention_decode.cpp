#include "kernels/attention_decode/attention_decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.h"
#include "kernels/attention_decode/decode_parts.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_decode/attention_decode.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_math-inl.h"
#include "kernels/base/vector_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr std::size_t kTile = DecodeScratch::kTile;

// Positions of the keys and values of at most kTile consecutive tokens of a context; only this depends on the block
// table. Entries past the last token repeat the last one.
template <class T>
struct Tile {
  std::array<const T*, kTile> k;
  std::array<const T*, kTile> v;
  std::size_t tokens;
};

template <class T>
void find_tile(const AttentionDecode& args, const DecodePiece& piece, std::int64_t begin, Tile<T>& tile) {
  const DecodeShape& s = args.shape;
  const CacheShape cache = s.cache();
  const auto* const table = args.table.as<std::int32_t>();
  const std::int64_t end = std::min(begin + std::int64_t{kTile}, piece.end);
  std::size_t n = 0;
  for (std::int64_t t = begin; t < end;) {
    const std::int64_t block = s.paged() ? table[piece.sequence * s.table_row() + t / cache.block] : piece.sequence;
    std::int64_t at = cache.offset(block * cache.block + t % cache.block, piece.head);
    for (const std::int64_t next = std::min(t - t % cache.block + cache.block, end); t < next; ++t, ++n) {
      tile.k[n] = args.k.as<T>() + at;
      tile.v[n] = args.v.as<T>() + at;
      at += cache.head_columns;
    }
  }
  tile.tokens = n;
  if (n == 0) return;
  std::fill(tile.k.begin() + static_cast<std::ptrdiff_t>(n), tile.k.end(), tile.k[n - 1]);
  std::fill(tile.v.begin() + static_cast<std::ptrdiff_t>(n), tile.v.end(), tile.v[n - 1]);
}

// The current tile, and the next one, whose lines are prefetched meanwhile.
template <class T>
struct Tiles {
  const Tile<T>& now;
  const Tile<T>& next;
};

// State of the work on a piece. Its rows are numbered from 0.
struct Work {
  const AttentionDecode& args;
  const DecodeParts& parts;
  const DecodePiece& piece;
  const DecodeScratch& scratch;
  std::size_t columns;
  std::size_t row_elems;

  std::int64_t row(std::int64_t r) const { return parts.first_row(piece) + r; }
  std::int64_t part() const { return piece.begin / DecodeParts::kPartTokens; }
  float* q(std::int64_t r) const { return scratch.q + r * scratch.row_elems; }
  float* o(std::int64_t r) const { return parts.o(row(r), part()); }
  float& max(std::int64_t r) const { return parts.max(row(r), part()); }
  float& sum(std::int64_t r) const { return parts.sum(row(r), part()); }
};

// Computes the products of kTokens keys from the t-th on with kRows queries: scores[row][token].
template <std::size_t kRows, std::size_t kTokens, class T>
HWY_INLINE void score_tokens(const Work& work, const Tiles<T>& tiles, std::size_t t, const float* q, float* scores) {
  std::array<std::array<VF32, kRows>, kTokens> sums;
  for (auto& of_token : sums) of_token.fill(hn::Zero(F32()));
  for_pairs<T>(work.columns, [&](std::size_t c, auto part) HWY_ATTR {
    std::array<Pair, kTokens> keys;
    for (std::size_t n = 0; n < kTokens; ++n) {
      hwy::Prefetch(tiles.next.k[t + n] + c);  // in the order of addresses, for the hardware prefetcher
      hwy::Prefetch(tiles.next.v[t + n] + c);
      keys[n] = part.load(tiles.now.k[t + n] + c);
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      const Pair query = load_pair(q + r * work.row_elems + c);
      for (std::size_t n = 0; n < kTokens; ++n) {
        sums[n][r] = hn::MulAdd(keys[n].b, query.b, hn::MulAdd(keys[n].a, query.a, sums[n][r]));
      }
    }
  });
  for (std::size_t n = 0; n < kTokens; ++n) {
    for (std::size_t r = 0; r < kRows; ++r) {
      scores[r * kTile + t + n] = hn::GetLane(hn::SumOfLanes(F32(), sums[n][r]));
    }
  }
}

template <std::size_t kRows, class T>
HWY_INLINE void score_tile(const Work& work, const Tiles<T>& tiles, const float* q, float* scores) {
  constexpr std::size_t kTokens = 2 * DecodeScratch::kRowsAtOnce / kRows;  // enough sums to hide an addition's latency
  std::size_t t = 0;
  for (; t + kTokens <= tiles.now.tokens; t += kTokens) score_tokens<kRows, kTokens>(work, tiles, t, q, scores);
  for (; t < tiles.now.tokens; ++t) score_tokens<kRows, 1>(work, tiles, t, q, scores);
}

// Turns a row's scores into weights, 0 from `seen` on; scales earlier sums to the new maximum.
HWY_INLINE void weigh(const Work& work, std::int64_t r, float* scores, std::size_t seen) {
  const F32 d;
  std::fill(scores + seen, scores + kTile, kNone);
  const float before = work.max(r);
  VF32 top = hn::Set(d, before);
  for (std::size_t i = 0; i < kTile; i += hn::Lanes(d)) top = hn::Max(load(scores + i), top);
  const float most = hn::GetLane(hn::MaxOfLanes(d, top));
  const float shift = most == kNone ? 0 : most;
  VF32 added = hn::Zero(d);
  for (std::size_t i = 0; i < kTile; i += hn::Lanes(d)) {
    const VF32 weight = exp_below_88_f32(hn::Sub(load(scores + i), hn::Set(d, shift)));
    store(weight, scores + i);
    added = hn::Add(added, weight);
  }
  const float kept = most == before ? 1 : std::exp(before - shift);
  work.sum(r) = work.sum(r) * kept + hn::GetLane(hn::SumOfLanes(d, added));
  work.max(r) = most;
  if (kept == 1) return;
  float* const o = work.o(r);
  for (std::size_t c = 0; c < work.row_elems; c += hn::Lanes(d)) store(hn::Mul(load(o + c), hn::Set(d, kept)), o + c);
}

// Computes o[row][c ...] += weights[row][token] v[token][c ...] for kPairs pairs of columns.
template <std::size_t kRows, std::size_t kPairs, class T, class Part>
HWY_INLINE void add_columns(const Work& work, const Tiles<T>& tiles, const float* weights, float* o, std::size_t c,
                            const Part& part) {
  const std::size_t step = pair_elems();
  std::array<RowPairs<kRows>, kPairs> sums;
  for (std::size_t p = 0; p < kPairs; ++p) {
    for (std::size_t r = 0; r < kRows; ++r) sums[p][r] = load_pair(o + r * work.row_elems + c + p * step);
  }
  for (std::size_t t = 0; t < tiles.now.tokens; ++t) {
    for (std::size_t p = 0; p < kPairs; ++p) {
      const Pair value = part.load(tiles.now.v[t] + c + p * step);
      for (std::size_t r = 0; r < kRows; ++r) {
        const VF32 weight = hn::Set(F32(), weights[r * kTile + t]);
        sums[p][r] = {hn::MulAdd(value.a, weight, sums[p][r].a), hn::MulAdd(value.b, weight, sums[p][r].b)};
      }
    }
  }
  for (std::size_t p = 0; p < kPairs; ++p) {
    for (std::size_t r = 0; r < kRows; ++r) store_pair(sums[p][r], o + r * work.row_elems + c + p * step);
  }
}

template <std::size_t kRows, class T>
HWY_INLINE void add_tile(const Work& work, const Tiles<T>& tiles, const float* weights, float* o) {
  constexpr std::size_t kPairs = DecodeScratch::kRowsAtOnce / kRows;
  const std::size_t step = pair_elems();
  std::size_t c = 0;
  for (; c + kPairs * step <= work.columns; c += kPairs * step) {
    add_columns<kRows, kPairs>(work, tiles, weights, o, c, WholePair<T>());
  }
  for (; c + step <= work.columns; c += step) add_columns<kRows, 1>(work, tiles, weights, o, c, WholePair<T>());
  if (c < work.columns) add_columns<kRows, 1>(work, tiles, weights, o, c, PartPair<T>{work.columns - c});
}

// Processes the tile that begins at token `begin` with the rows from `first` to `first` + kRows - 1.
template <std::size_t kRows, class T>
HWY_INLINE void take_rows(const Work& work, const Tiles<T>& tiles, std::int64_t begin, std::int64_t first) {
  float* const scores = work.scratch.scores;
  const std::int64_t queries = work.args.shape.queries;
  score_tile<kRows>(work, tiles, work.q(first), scores);
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::int64_t r = first + static_cast<std::int64_t>(i);
    const std::int64_t sees = work.piece.length - (queries - 1 - r % queries) - begin;
    const std::int64_t seen = std::clamp<std::int64_t>(sees, 0, static_cast<std::int64_t>(tiles.now.tokens));
    weigh(work, r, scores + i * kTile, static_cast<std::size_t>(seen));
  }
  add_tile<kRows>(work, tiles, scores, work.o(first));
}

// Stores the queries times the scale, in the order of pairs of T and padded with zeros; clears the sums.
template <class T>
void begin_rows(const Work& work) {
  const VF32 factor = hn::Set(F32(), work.args.shape.factor());
  for (std::int64_t r = 0; r < work.parts.piece_rows(); ++r) {
    const T* const from = work.args.q.as<T>() + work.parts.query_offset(work.row(r));
    float* const q = work.q(r);
    std::fill(q, q + work.row_elems, 0.0F);
    std::fill(work.o(r), work.o(r) + work.row_elems, 0.0F);
    work.max(r) = kNone;
    work.sum(r) = 0;
    for_pairs<T>(work.columns, [&](std::size_t c, auto part) HWY_ATTR {
      const Pair query = part.load(from + c);
      store_pair({hn::Mul(query.a, factor), hn::Mul(query.b, factor)}, q + c);
    });
  }
}

template <class T>
void attend_to(const Work& work) {
  begin_rows<T>(work);
  const std::int64_t rows = work.parts.piece_rows();
  std::array<Tile<T>, 2> both_tiles;
  std::size_t turn = 0;
  find_tile(work.args, work.piece, work.piece.begin, both_tiles[0]);
  for (std::int64_t t = work.piece.begin; t < work.piece.end; t += std::int64_t{kTile}, turn = 1 - turn) {
    const Tile<T>& now = both_tiles[turn];
    Tile<T>& next = both_tiles[1 - turn];
    find_tile(work.args, work.piece, t + std::int64_t{kTile}, next);
    const Tiles<T> tiles{now, next.tokens > 0 ? next : now};
    std::int64_t r = 0;
    for (; r + 4 <= rows; r += 4) take_rows<4>(work, tiles, t, r);
    for (; r + 2 <= rows; r += 2) take_rows<2>(work, tiles, t, r);
    if (r < rows) take_rows<1>(work, tiles, t, r);
  }
}

void attend(const AttentionDecode& args, const DecodeParts& parts, const DecodePiece& piece,
            const DecodeScratch& scratch) {
  const Work work{.args = args,
                  .parts = parts,
                  .piece = piece,
                  .scratch = scratch,
                  .columns = static_cast<std::size_t>(args.shape.head_columns),
                  .row_elems = static_cast<std::size_t>(parts.row_elems())};
  with_activation_type(args.q.dtype, [&](auto zero) { attend_to<decltype(zero)>(work); });
}

// Merges a row of the result from its parts, whose maxima become their factors.
template <class T>
void merge_row(const AttentionDecode& args, const DecodeParts& parts, std::int64_t row) {
  const std::int64_t num_parts = parts.parts_of(row);
  float most = kNone;
  for (std::int64_t p = 0; p < num_parts; ++p) most = std::max(most, parts.max(row, p));
  const float shift = most == kNone ? 0 : most;
  float sum = 0;
  for (std::int64_t p = 0; p < num_parts; ++p) {
    float& factor = parts.max(row, p);
    factor = std::exp(factor - shift);
    sum += parts.sum(row, p) * factor;
  }
  args.lse.as<float>()[row] = shift + std::log(sum);
  const VF32 divisor = hn::Set(F32(), sum);
  T* const o = args.o.as<T>() + parts.query_offset(row);
  for_pairs<T>(static_cast<std::size_t>(args.shape.head_columns), [&](std::size_t c, auto part) HWY_ATTR {
    Pair total = both(hn::Zero(F32()));
    for (std::int64_t p = 0; p < num_parts; ++p) {
      const VF32 factor = hn::Set(F32(), parts.max(row, p));
      const Pair output = load_pair(static_cast<const float*>(parts.o(row, p) + c));
      total = {hn::MulAdd(output.a, factor, total.a), hn::MulAdd(output.b, factor, total.b)};
    }
    part.store({hn::Div(total.a, divisor), hn::Div(total.b, divisor)}, o + c);
  });
}

void merge(const AttentionDecode& args, const DecodeParts& parts, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.q.dtype, [&](auto zero) {
    for (std::int64_t row = begin; row < end; ++row) merge_row<decltype(zero)>(args, parts, row);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {

HWY_EXPORT(attend);
HWY_EXPORT(merge);

[[noreturn]] void refuse(const AttentionDecode& args, const std::string& what, std::int64_t value,
                         const std::string& allowed) {
  throw core::usage_error(std::string(args.name()) + ": " + what + " is " + std::to_string(value) +
                          "; allowed: " + allowed);
}

// Checks the lengths and the blocks that they reach: a wrong block number would read outside of the cache.
void check_contexts(const AttentionDecode& args) {
  const DecodeShape& s = args.shape;
  for (std::int64_t n = 0; n < s.sequences; ++n) {
    const std::int64_t length = args.lengths.as<std::int32_t>()[n];
    if (length != 0 && (length < s.queries || length > s.most_keys)) {
      refuse(args, "lengths[" + std::to_string(n) + "]", length,
             "0, or " + std::to_string(s.queries) + " to " + std::to_string(s.most_keys));
    }
    if (!s.paged()) continue;
    const auto* const row = args.table.as<std::int32_t>() + n * s.table_row();
    for (std::int64_t i = 0; i * s.block < length; ++i) {
      if (row[i] >= 0 && row[i] < s.blocks) continue;
      refuse(args, "table[" + std::to_string(n) + "][" + std::to_string(i) + "]", row[i],
             "0 to " + std::to_string(s.blocks - 1));
    }
  }
}

}  // namespace

float DecodeShape::factor() const {
  return scale == 0 ? 1 / std::sqrt(static_cast<float>(head_columns)) : scale;
}

void DecodeShape::check(std::string_view kernel) const {
  check_sizes(kernel, {{"sequences", sequences},
                       {"heads", heads},
                       {"kv_heads", kv_heads},
                       {"head_columns", head_columns},
                       {"queries", queries}});
  check_at_least(kernel, "most_keys", most_keys, queries);
  check_at_least(kernel, "keys", keys, 0);
  check_at_least(kernel, "block", block, 0);
  if (paged()) check_at_least(kernel, "blocks", blocks, 1);
  check_divides(kernel, "kv_heads", kv_heads, "heads", heads);
}

// FLOPs per pair: q . k and its scale, - max, exp, + of the sum, weight * v. Per query: / of o, log, +. As for
// attention_fwd.
Cost cost_of(const AttentionDecode& args) {
  const DecodeShape& s = args.shape;
  const auto columns = static_cast<double>(s.head_columns);
  const double flops = static_cast<double>(s.heads) * ((4 * columns + 4) * static_cast<double>(s.pairs()) +
                                                       (columns + 2) * static_cast<double>(s.sequences * s.queries));
  const std::int64_t rows = s.rows() + s.keys * s.kv_heads;  // q and o; k and v
  const std::int64_t entries = s.paged() ? (s.keys + s.block - 1) / s.block : 0;
  const double bytes =
      2 * static_cast<double>(size_bytes(args.q.dtype, rows * s.head_columns)) +
      static_cast<double>(size_bytes(core::DType::i32, entries + s.sequences) + size_bytes(core::DType::f32, s.rows()));
  return {flops, bytes, "only the tokens in contexts, and the table entries of their blocks, are read"};
}

void run_cpu(const AttentionDecode& args, ThreadPool& pool) {
  check_contexts(args);
  DecodeParts parts(args);
  parts.take_memory(pool.scratch_of<float>(-1, parts.elems()).data());
  pool.for_pieces(parts.num_pieces(), [&](std::int64_t number, int thread) {
    const DecodePiece piece = parts.piece(number);
    if (piece.begin >= piece.length) return;
    const DecodeScratch scratch(parts, pool.scratch_of<float>(thread, DecodeScratch::elems(parts)).data());
    HWY_DYNAMIC_DISPATCH(attend)(args, parts, piece, scratch);
  });
  constexpr std::int64_t kGrain = 16;  // rows
  pool.for_ranges(args.shape.rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(merge)(args, parts, begin, end);
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
