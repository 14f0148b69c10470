// How decoding is divided for the CPU: the parts of contexts that threads take, and the results to be merged. For the
// sources of this folder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention_decode/attention_decode.h"

namespace lockstep::kernels {

// A part of a context and a head of keys: tokens [begin, end); empty if it begins past the context.
struct DecodePiece {
  std::int64_t sequence;
  std::int64_t head;
  std::int64_t length;  // length of the context
  std::int64_t begin;
  std::int64_t end;
};

// The pieces, and the memory for their f32 results per row (one head of one query): the sum of values with weights
// relative to the row's maximum, that maximum, and the sum of the weights. Rows are numbered like the log-sum-exps.
// Parts have a fixed length, so that results do not depend on the number of threads.
class DecodeParts {
 public:
  static constexpr std::int64_t kPartTokens = 512;

  explicit DecodeParts(const AttentionDecode& args)
      : args_(args), most_parts_((args.shape.most_keys + kPartTokens - 1) / kPartTokens) {}

  std::size_t elems() const { return static_cast<std::size_t>(num_pieces() * piece_elems()); }
  void take_memory(float* memory) { memory_ = memory; }

  std::int64_t num_pieces() const { return args_.shape.sequences * args_.shape.kv_heads * most_parts_; }
  // Consecutive pieces belong to different heads, so that threads have equal work if contexts differ in length.
  DecodePiece piece(std::int64_t number) const {
    const DecodeShape& s = args_.shape;
    const std::int64_t sequence = number / s.kv_heads % s.sequences;
    const std::int64_t begin = number / s.kv_heads / s.sequences * kPartTokens;
    return {sequence, number % s.kv_heads, length(sequence), begin, std::min(begin + kPartTokens, length(sequence))};
  }
  std::int64_t piece_rows() const { return args_.shape.group() * args_.shape.queries; }
  std::int64_t first_row(const DecodePiece& piece) const {
    return (piece.sequence * args_.shape.kv_heads + piece.head) * piece_rows();
  }
  // Floats from one row to the next: a multiple of a vector pair on every target.
  std::int64_t row_elems() const {
    constexpr std::int64_t kMostPair = 32;
    return (args_.shape.head_columns + kMostPair - 1) / kMostPair * kMostPair;
  }

  float* o(std::int64_t row, std::int64_t part) const { return at(row, part) + row % piece_rows() * row_elems(); }
  float& max(std::int64_t row, std::int64_t part) const {
    return at(row, part)[piece_rows() * row_elems() + row % piece_rows()];
  }
  float& sum(std::int64_t row, std::int64_t part) const {
    return at(row, part)[piece_rows() * (row_elems() + 1) + row % piece_rows()];
  }
  std::int64_t parts_of(std::int64_t row) const {
    return (length(row / (args_.shape.heads * args_.shape.queries)) + kPartTokens - 1) / kPartTokens;
  }
  // Returns the position of a row in q and o.
  std::int64_t query_offset(std::int64_t row) const {
    const DecodeShape& s = args_.shape;
    const std::int64_t sequence = row / s.queries / s.heads;
    const std::int64_t head = row / s.queries % s.heads;
    return ((sequence * s.queries + row % s.queries) * s.heads + head) * s.head_columns;
  }

 private:
  std::int64_t length(std::int64_t sequence) const { return args_.lengths.as<std::int32_t>()[sequence]; }
  std::int64_t piece_elems() const {
    constexpr std::int64_t kLine = 16;
    return (piece_rows() * (row_elems() + 2) + kLine - 1) / kLine * kLine;
  }
  float* at(std::int64_t row, std::int64_t part) const {
    return memory_ + (row / piece_rows() * most_parts_ + part) * piece_elems();
  }

  const AttentionDecode& args_;
  std::int64_t most_parts_;
  float* memory_ = nullptr;
};

// A thread's memory for its current piece.
struct DecodeScratch {
  static constexpr std::int64_t kTile = 32;       // tokens whose scores are held at a time
  static constexpr std::int64_t kRowsAtOnce = 4;  // rows that use a key or value while it is in registers

  static std::size_t elems(const DecodeParts& parts) {
    return static_cast<std::size_t>(kRowsAtOnce * kTile + parts.piece_rows() * parts.row_elems());
  }
  DecodeScratch(const DecodeParts& parts, float* memory)
      : scores(memory), q(memory + kRowsAtOnce * kTile), row_elems(parts.row_elems()) {}

  float* scores;  // [kRowsAtOnce][kTile], first scores, then weights
  float* q;       // [rows][row_elems], times the scale
  std::int64_t row_elems;
};

}  // namespace lockstep::kernels
