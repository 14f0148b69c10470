// A tensor-parallel layer as passes that can be timed and checked.
#pragma once

#include <memory>
#include <vector>

#include "bench/parallel_layers/pass.h"
#include "bench/parallel_layers/shape.h"
#include "bench/parallel_layers/sides.h"

namespace lockstep::layer_bench {

// One rank's. Its passes refer to it.
class Block {
 public:
  Block() = default;
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Spoils what passes write, and puts gradients, which are added to, at zero.
  virtual void reset() = 0;
  virtual std::vector<Result> results() const = 0;  // of a forward and a backward

  const Pass& forward() const { return forward_; }
  const Pass& backward() const { return backward_; }

 protected:
  Pass forward_;
  Pass backward_;
};

std::unique_ptr<Block> make_block(BlockKind kind, const Place& place);

// Makers of one each, for make_block.
std::unique_ptr<Block> make_column_block(const Place& place);
std::unique_ptr<Block> make_row_block(const Place& place);
std::unique_ptr<Block> make_mlp_block(const Place& place);
std::unique_ptr<Block> make_attention_block(const Place& place);
std::unique_ptr<Block> make_embedding_block(const Place& place);
std::unique_ptr<Block> make_cross_entropy_block(const Place& place);

// Additions in the longest sum of a result, and how often it was rounded to the dtype on its way on one rank: what
// bounds of differences are made of.
struct Roundings {
  std::int64_t longest_sum;
  int on_the_way;
};
Roundings roundings_of(BlockKind kind, const Shape& shape);

}  // namespace lockstep::layer_bench
