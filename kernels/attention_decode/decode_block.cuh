// The work of a block of a decode kernel, and the places of its rows and tokens in memory: arithmetic that needs no
// device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention_decode/attention_decode.h"

namespace lockstep::kernels {

template <class T>
struct DecodeOperands {
  DecodeShape shape;
  CacheShape cache;
  std::int64_t table_row;
  float factor;
  std::int64_t piece_rows;  // rows of a head of keys: queries times the heads that share it
  std::int64_t chunks;      // number of groups of rows that a block takes
  const T* q;
  const T* k;
  const T* v;
  const std::int32_t* table;  // null for a plain cache
  const std::int32_t* lengths;
  T* o;
  float* lse;
  std::int64_t parts = 1;        // parts of the longest context
  std::int64_t part_tokens = 0;  // tokens per part: whole blocks
  // For the merge, if there are several parts.
  float* part_o = nullptr;     // [row][part][columns], before the division
  float* part_sums = nullptr;  // [row][part][2]: maximum of scores, sum of weights
};

// For kernels whose blocks take `rows` rows each; the parts are still to be chosen.
template <class T>
DecodeOperands<T> decode_operands(const AttentionDecode& args, std::int64_t rows) {
  const DecodeShape& s = args.shape;
  return {.shape = s,
          .cache = s.cache(),
          .table_row = s.paged() ? s.table_row() : 0,
          .factor = s.factor(),
          .piece_rows = s.group() * s.queries,
          .chunks = (s.group() * s.queries + rows - 1) / rows,
          .q = args.q.as<T>(),
          .k = args.k.as<T>(),
          .v = args.v.as<T>(),
          .table = s.paged() ? args.table.as<std::int32_t>() : nullptr,
          .lengths = args.lengths.as<std::int32_t>(),
          .o = args.o.as<T>(),
          .lse = args.lse.as<float>()};
}

// A part of a context, a head of keys, and a few of the rows that share it.
struct DecodeBlock {
  std::int64_t sequence;
  std::int64_t head;
  std::int64_t first_row;  // first of the head's rows
  std::int64_t part;
  std::int64_t length;
  std::int64_t begin;
  std::int64_t end;
};

template <class T>
__device__ inline DecodeBlock decode_block_of(const DecodeOperands<T>& args, std::int64_t number, int rows) {
  DecodeBlock block{};
  block.part = number % args.parts;
  number /= args.parts;
  block.first_row = number % args.chunks * rows;
  number /= args.chunks;
  block.head = number % args.shape.kv_heads;
  block.sequence = number / args.shape.kv_heads;
  const std::int64_t length = args.lengths[block.sequence] > 0 ? args.lengths[block.sequence] : 0;
  block.length = length < args.shape.most_keys ? length : args.shape.most_keys;
  block.begin = block.part * args.part_tokens;
  const std::int64_t end = block.begin + args.part_tokens;
  block.end = end < block.length ? end : block.length;
  return block;
}

// The table's entries for a part, and their number.
template <class T>
__device__ inline const std::int32_t* table_of(const DecodeOperands<T>& args, const DecodeBlock& block) {
  return args.table + block.sequence * args.table_row + block.begin / args.cache.block;
}

// Returns the number of the block's first row; rows are numbered as their log-sum-exps.
template <class T>
__device__ inline std::int64_t first_row_of(const DecodeOperands<T>& args, const DecodeBlock& block) {
  return (block.sequence * args.shape.kv_heads + block.head) * args.piece_rows + block.first_row;
}

// Returns the first token that the block's row number r does not see, or the part's end.
template <class T>
__device__ inline std::int64_t limit_of(const DecodeOperands<T>& args, const DecodeBlock& block, std::int64_t r) {
  const std::int64_t later = args.shape.queries - 1 - (block.first_row + r) % args.shape.queries;
  return block.end < block.length - later ? block.end : block.length - later;
}

// Returns the position of a row in q and o.
template <class T>
__device__ inline std::int64_t query_offset(const DecodeOperands<T>& args, std::int64_t row) {
  const std::int64_t queries = args.shape.queries;
  const std::int64_t heads = args.shape.heads;
  const std::int64_t sequence = row / queries / heads;
  return ((sequence * queries + row % queries) * heads + row / queries % heads) * args.shape.head_columns;
}

// Returns a token's first element of its head in the cache. `blocks` are the part's.
template <class T>
__device__ inline std::int64_t offset_of(const DecodeOperands<T>& args, const DecodeBlock& block,
                                         const std::int32_t* blocks, std::int64_t t) {
  const CacheShape& cache = args.cache;
  std::int64_t number = block.sequence;
  std::int64_t place = t;
  if (args.table != nullptr) {
    const int in_part = static_cast<int>(t - block.begin);
    const int block_tokens = static_cast<int>(cache.block);
    number = blocks[in_part / block_tokens];
    place = in_part % block_tokens;
  }
  return ((number * cache.kv_heads + block.head) * cache.block + place) * cache.head_columns;
}

}  // namespace lockstep::kernels
