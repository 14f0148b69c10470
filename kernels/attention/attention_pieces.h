// How attention is divided for the CPU: the pieces that threads take, and the memory that each needs. For the sources
// of this folder.
//
// Scores are stored transposed, one key per row and one query per column, in tiles of kTile by kTile: sums and maxima
// over the keys of a query then run down columns, a vector of queries at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace lockstep::kernels {

inline constexpr std::int64_t kTile = 64;

constexpr std::int64_t tiles_of(std::int64_t length) {
  return (length + kTile - 1) / kTile;
}
// Columns of a head as stored in scratch memory: whole vectors on every target.
constexpr std::int64_t padded_columns(std::int64_t head_columns) {
  constexpr std::int64_t kMostLanes = 16;
  return (head_columns + kMostLanes - 1) / kMostLanes * kMostLanes;
}

// Divides a piece's scratch memory; starting from null, it computes how much is needed.
class ScratchCutter {
 public:
  explicit ScratchCutter(float* memory) : memory_(memory) {}
  float* take(std::int64_t elems) {
    float* const taken = memory_ == nullptr ? nullptr : memory_ + used_;
    constexpr std::int64_t kLine = 16;  // floats
    used_ += (elems + kLine - 1) / kLine * kLine;
    return taken;
  }
  std::size_t used() const { return static_cast<std::size_t>(used_); }

 private:
  float* memory_;
  std::int64_t used_ = 0;
};

// One head of keys and values of one sequence, and every step-th tile of its queries, beginning with the first-th.
struct AttentionPiece {
  std::int64_t batch;
  std::int64_t key_head;
  std::int64_t first_tile = 0;
  std::int64_t tile_step = 1;
};
// One head of queries that reads these keys.
struct QueryHead {
  std::int64_t batch;
  std::int64_t head;
};
// Calls visit(query head, number in the group) for the heads of queries that read a piece's keys.
template <class Visit>
void for_each_query_head(const AttentionShape& shape, const AttentionPiece& piece, Visit&& visit) {
  const std::int64_t group = shape.group();
  for (std::int64_t h = 0; h < group; ++h) visit(QueryHead{piece.batch, piece.key_head * group + h}, h);
}
// Number of keys whose gradients a piece accumulates at a time: a tile's or, if several heads of queries add to them,
// all.
inline std::int64_t gathered_keys(const AttentionShape& shape) {
  return shape.group() == 1 ? kTile : tiles_of(shape.keys) * kTile;
}

// A tile of keys and a tile of queries. Key j of the tile is seen by the tile's queries from j - shift on.
struct TilePair {
  std::int64_t num_keys;
  std::int64_t num_queries;
  std::int64_t shift;
};

inline TilePair tile_pair(const AttentionShape& shape, std::int64_t key_tile, std::int64_t query_tile) {
  const std::int64_t first_key = key_tile * kTile;
  const std::int64_t first_query = query_tile * kTile;
  const std::int64_t num_keys = std::min(kTile, shape.keys - first_key);
  const std::int64_t shift = shape.causal ? first_query + shape.keys - shape.queries - first_key : num_keys;
  return {num_keys, std::min(kTile, shape.queries - first_query), shift};
}
// Returns whether any query of the tile sees any of its keys.
inline bool is_seen(const TilePair& pair) {
  return pair.shift > -pair.num_queries;
}

struct ForwardMemory {
  explicit ForwardMemory(const AttentionShape& shape, float* memory = nullptr);
  std::size_t elems;
  float* k;         // [keys, padded columns]
  float* v;         // [keys, padded columns]
  float* q;         // [kTile, padded columns]
  float* qt;        // [head_columns, kTile], scaled
  float* weights;   // [kTile keys, kTile queries], first scores
  float* o;         // [kTile, padded columns]
  float* max;       // [kTile]
  float* sum;       // [kTile]
  float* decrease;  // [kTile], e^(old maximum - new maximum)
};

struct BackwardMemory {
  explicit BackwardMemory(const AttentionShape& shape, float* memory = nullptr);
  std::size_t elems;
  float* k;         // [keys, padded columns]
  float* v;         // [keys, padded columns]
  float* q;         // [queries to whole tiles, padded columns]
  float* d_o;       // as q
  float* qt;        // [query tiles, head_columns, kTile], scaled
  float* d_ot;      // [query tiles, head_columns, kTile]
  float* lse;       // [query tiles, kTile]
  float* delta;     // [query tiles, kTile], o . d_o
  float* weights;   // [kTile keys, kTile queries], first scores
  float* d_scores;  // [kTile keys, kTile queries], first gradients of weights
  float* dq;        // as q
  float* dk;        // [gathered keys, padded columns]
  float* dv;        // [gathered keys, padded columns]
};

void run_forward_piece(const AttentionForward& args, const AttentionPiece& piece, const ForwardMemory& memory);
void run_backward_piece(const AttentionBackward& args, const AttentionPiece& piece, const BackwardMemory& memory);

}  // namespace lockstep::kernels
