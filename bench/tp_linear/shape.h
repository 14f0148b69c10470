// A case of tp_linear_bench: sizes, the ranks that share a layer, and how they split it.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace lockstep::tp_linear {

enum class BlockKind : std::uint8_t { column, row, mlp, attention, embedding, cross_entropy };

enum class Direction : std::uint8_t { forward, backward };

struct Shape {
  std::int64_t batch = 4;     // b
  std::int64_t length = 128;  // s
  std::int64_t hidden = 256;  // h
  std::int64_t heads = 8;
  std::int64_t vocabulary = 8191;
  core::DType dtype = core::DType::f32;

  std::int64_t rows() const { return batch * length; }
  std::int64_t inner() const { return 4 * hidden; }
};

struct Sharing {
  int ranks = 1;
  int index = 0;
  bool sequence_parallel = false;
  int tiles = 1;
};

}  // namespace lockstep::tp_linear
