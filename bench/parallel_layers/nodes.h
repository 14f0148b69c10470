// A block's operations on one rank, bound to tensors: each is a node that gives the kernel calls of its operation their
// data, for all rows or a tile of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "bench/parallel_layers/exchanger.h"
#include "bench/parallel_layers/shape.h"
#include "bench/parallel_layers/tiles.h"
#include "kernels/base/view.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"
#include "workload/operations.h"
#include "workload/parameter.h"

namespace lockstep::layer_bench {

// Where a block is run. On one rank there is no exchanger.
struct Place {
  const Shape& shape;
  Sharing sharing;
  const parallel::Workspace& workspace;
  Exchanger* exchanger = nullptr;

  workload::TensorPlace tensor() const { return {sharing.ranks, sharing.index}; }
  Tiles tiles() const { return {shape.rows(), sharing}; }
  parallel::Tensor make(std::int64_t elems) const;  // of the dtype
  parallel::Tensor make_f32(parallel::MemoryKind kind, std::int64_t elems) const;
  parallel::Tensor random(const workload::Parameter& whole) const;
  parallel::Tensor random_in_tiles(const workload::Parameter& whole) const;  // all rows
};

// A result of a pass, and the whole matrix that it is a share of.
struct Result {
  workload::Parameter whole;  // [rows, columns]
  const parallel::Tensor* found = nullptr;
  // Elements are held to a bound of their own, not of the largest.
  bool elementwise = false;
  // Where its elements lie in the whole; if not as the parameter says.
  std::function<void(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>&)> runs = {};
  bool in_tiles = false;  // rows lie in the order of tiles
};

// Between two operations, [rows, columns] each. Where tensor ranks have all rows, these lie in the order of tiles.
struct Value {
  std::int64_t columns = 0;
  parallel::Tensor x = {};
  parallel::Tensor d = {};        // its gradient
  parallel::Tensor pre = {};      // what went into the GELU that x came out of
  parallel::Tensor again = {};    // x, gathered once more for the weight's gradient
  const Value* shares = nullptr;  // what x is gathered from

  kernels::In x_in(const Tile& tile) const { return x.in(tile.first * columns, tile.rows * columns); }
  kernels::Out x_out(const Tile& tile) const { return x.out(tile.first * columns, tile.rows * columns); }
  kernels::In d_in(const Tile& tile) const { return d.in(tile.first * columns, tile.rows * columns); }
  kernels::Out d_out(const Tile& tile) const { return d.out(tile.first * columns, tile.rows * columns); }
};

class Node {
 public:
  virtual ~Node() = default;
  virtual void forward(const Tile& tile) = 0;
  virtual void input_gradient(const Tile& /*tile*/) {}
  virtual void weight_gradient() {}
  // Spoils what passes write, and puts gradients, which are added to, at zero; values between nodes are not its own.
  virtual void reset() const {}
  virtual void add_results(std::vector<Result>& /*results*/) const {}
};

// The arguments outlive the node.
std::unique_ptr<Node> make_product(const Place& place, const workload::Operation& op, Value& in, Value& out);
std::unique_ptr<Node> make_attention_core(const Place& place, const workload::Operation& op, Value& in, Value& out);
std::unique_ptr<Node> make_embedding(const Place& place, const workload::Operation& op, Value& out);

// The logits of a loss over words that ranks share out, and their gradient, which takes their place.
struct Logits {
  explicit Logits(const Place& place);
  void reset(const Place& place) const;  // logits as they were

  std::int64_t words, valid, first;  // of this rank: columns, those that stand for a word, the word of column 0
  parallel::Tensor targets, now;
  std::vector<std::byte> product;  // on the host
};
std::unique_ptr<Node> make_statistics(const Place& place, const workload::Operation& op, const Logits& logits,
                                      Value& out);
// `statistics`: of all ranks; without, one rank has all words.
std::unique_ptr<Node> make_loss(const Place& place, const workload::Operation& op, const Logits& logits,
                                const Value* statistics);

constexpr unsigned char kSpoilt = 0xff;                                                  // a NaN in every dtype
void spoil(const Place& place, std::initializer_list<const parallel::Tensor*> tensors);  // those that are there

}  // namespace lockstep::layer_bench
