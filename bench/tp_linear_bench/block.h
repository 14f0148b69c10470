// The block that tp_linear_bench times: its sizes and how ranks split it, its operations on one rank, the tensors that
// they work on, and its passes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/step/pass.h"
#include "core/dtype.h"
#include "kernels/base/view.h"
#include "parallel/layers/layers.h"
#include "parallel/memory/memory.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::tp_linear {

using step_bench::Direction;
using step_bench::Exchanger;
using step_bench::kNothing;
using step_bench::Pass;
using step_bench::TaskKind;

// A case of tp_linear_bench: sizes, the ranks that share a layer, and how they split it.

enum class BlockKind : std::uint8_t { column, row, mlp, attention, embedding, cross_entropy };

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

// Rows of a layer split into tiles, so that the exchange of one tile overlaps with the product of another.
//
// Without sequence parallelism a tile is a run of rows. With it a tile has the same number of rows of each rank's
// share, so that a reduce-scatter leaves every rank with the next rows of its own share, and a gather collects rows
// from all. A layer then keeps its rows in tile order, so that a tile is one product: 2 ranks, 2 tiles, 8 rows:
//
//   row            0 1 2 3 | 4 5 6 7      of rank 0 | of rank 1
//   in this order  0 1 4 5 | 2 3 6 7      tile 0 | tile 1

struct Tile {
  std::int64_t number;
  std::int64_t first;  // first of its rows, which are contiguous
  std::int64_t rows;
  int ready = kNothing;  // exchange that must end before they are available
};

struct Tiles {
  std::int64_t rows;
  Sharing sharing;

  std::int64_t tile_rows() const { return rows / sharing.tiles; }
  std::int64_t own_tile_rows() const { return tile_rows() / sharing.ranks; }  // with sequence parallelism
  Tile whole() const { return {0, 0, rows}; }
  std::vector<Tile> all() const {
    std::vector<Tile> tiles;
    for (std::int64_t t = 0; t < sharing.tiles; ++t) tiles.push_back({t, t * tile_rows(), tile_rows()});
    return tiles;
  }

  // True if tile order differs from row order.
  bool reorders() const { return sharing.sequence_parallel && sharing.tiles > 1; }
  // The row at each position.
  std::vector<std::int32_t> order() const {
    const std::int64_t shares = reorders() ? sharing.ranks : 1;
    const std::int64_t tiles = reorders() ? sharing.tiles : 1;
    const std::int64_t side_by_side = rows / shares / tiles;
    std::vector<std::int32_t> order;
    for (std::int64_t t = 0; t < tiles; ++t) {
      for (std::int64_t r = 0; r < shares; ++r) {
        const std::int64_t first = (r * tiles + t) * side_by_side;
        for (std::int64_t i = 0; i < side_by_side; ++i) order.push_back(static_cast<std::int32_t>(first + i));
      }
    }
    return order;
  }
};

// Reorders a layer's rows into tile order and back.

class RowOrder {
 public:
  RowOrder(const parallel::Workspace& workspace, const Tiles& tiles);

  // Copies; not needed if tiles do not reorder.
  void into_tiles(kernels::In rows, kernels::Out in_tiles) const { copy(from_.in(), rows, in_tiles); }
  void out_of_tiles(kernels::In in_tiles, kernels::Out rows) const { copy(to_.in(), in_tiles, rows); }

 private:
  void copy(kernels::In from_rows, kernels::In from, kernels::Out to) const;
  const parallel::Workspace& workspace_;
  parallel::Tensor from_, to_;  // i32: the row at each position, the position of each row
};

// The same on the host.
std::vector<float> out_of_tiles(const Tiles& tiles, const std::vector<float>& in_tiles);

// Tensors of random values, of which every rank makes its share, and their copies on the host.

inline constexpr std::uint64_t kSeed = 1;  // for all values

// Normal values with this deviation, rounded to the dtype; padding is zero. The same for every split.
parallel::Tensor random_share(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                              workload::TensorRank place);
// The same if a share of `elems` elements is in `runs` of the whole: calls its argument with (share_begin, whole_begin,
// count).
using Runs = std::function<void(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>&)>;
parallel::Tensor random_runs(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                             std::int64_t elems, const Runs& runs);
// `count` random numbers in [0, below).
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below);
parallel::Tensor ids_of(parallel::Memory& memory, const std::vector<std::int32_t>& ids);

void set_bytes(parallel::Memory& memory, const parallel::Tensor& tensor, unsigned char byte);

// A block's operations on one rank, bound to tensors: each is a node that runs the kernel calls of its operation on
// their data, for all rows or a tile of them.

// Everything that nodes need from the rank on which a block runs. A single rank has no exchanger.
struct NodeContext {
  const Shape& shape;
  Sharing sharing;
  const parallel::Workspace& workspace;
  Exchanger* exchanger = nullptr;

  workload::TensorRank tensor() const { return {sharing.ranks, sharing.index}; }
  Tiles tiles() const { return {shape.rows(), sharing}; }
  parallel::Tensor make(std::int64_t elems) const;  // in the compute dtype
  parallel::Tensor make_f32(parallel::MemoryKind kind, std::int64_t elems) const;
  parallel::Tensor random(const workload::Parameter& whole) const;
  parallel::Tensor random_in_tiles(const workload::Parameter& whole) const;  // all rows
};

// A result of a pass, and the whole matrix of which it is a share.
struct Result {
  workload::Parameter whole;  // [rows, columns]
  const parallel::Tensor* found = nullptr;
  // The bound applies to each element, not to the largest one.
  bool elementwise = false;
  // Position of its elements in the whole, if it differs from the parameter's.
  std::function<void(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>&)> runs = {};
  bool in_tiles = false;  // rows are in tile order
};

// A tensor between two operations, [rows, columns]. If tensor-parallel ranks have all rows, these are in tile order.
struct Value {
  std::int64_t columns = 0;
  parallel::Tensor x = {};
  parallel::Tensor d = {};        // its gradient
  parallel::Tensor pre = {};      // the input of the GELU whose output is x
  parallel::Tensor again = {};    // x, gathered again for the weight gradient
  const Value* shares = nullptr;  // the shares from which x is gathered

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
  // Overwrites with NaN the tensors that passes write, and zeroes gradients, which are accumulated; values between
  // nodes are not included.
  virtual void reset() const {}
  virtual void add_results(std::vector<Result>& /*results*/) const {}
};

// The arguments must outlive the node.
std::unique_ptr<Node> make_product(const NodeContext& context, const workload::Operation& op, Value& in, Value& out);
std::unique_ptr<Node> make_attention_core(const NodeContext& context, const workload::Operation& op, Value& in,
                                          Value& out);
std::unique_ptr<Node> make_embedding(const NodeContext& context, const workload::Operation& op, Value& out);

// The logits of a loss over a sharded vocabulary, and their gradient, which overwrites them.
struct Logits {
  explicit Logits(const NodeContext& context);
  void reset(const NodeContext& context) const;  // restores the logits

  std::int64_t words, valid, first;  // this rank's columns, those that correspond to a word, and the word of column 0
  parallel::Tensor targets, now;
  std::vector<std::byte> product;  // on the host
};
std::unique_ptr<Node> make_statistics(const NodeContext& context, const workload::Operation& op, const Logits& logits,
                                      Value& out);
// `statistics` of all ranks; nullptr if one rank has all words.
std::unique_ptr<Node> make_loss(const NodeContext& context, const workload::Operation& op, const Logits& logits,
                                const Value* statistics);

constexpr unsigned char kSpoilt = 0xff;  // makes a NaN in every dtype
void spoil(const NodeContext& context, std::initializer_list<const parallel::Tensor*> tensors);  // skips empty tensors

// A block as a part of the step model: the operations of one layer, of the embedding or of the head that it times, and
// results that follow from them without running anything.

// Operations on `ranks` tensor-parallel ranks; a single rank has no exchanges. A linear layer alone has no GELU, the
// loss no product.
std::vector<workload::Operation> operations_of(BlockKind kind, const Shape& shape, const Sharing& sharing);

// The matrix of a product, and its bias.
struct LinearParameters {
  workload::Parameter weight;
  workload::Parameter bias;
};
LinearParameters parameters_of(workload::OperationKind product, const Shape& shape);

// Bytes that a rank sends, by direction, with collectives of minimal traffic.
std::array<double, 2> formula_bytes_of(BlockKind kind, const Shape& shape, const Sharing& sharing);
// Likewise: by all ranks together in a forward and a backward.
std::int64_t formula_bytes_of_all(BlockKind kind, const Shape& shape, const Sharing& sharing);

// Approximate bytes that the kernels of a forward and a backward read and write, which one rank holds all the time.
std::int64_t needed_bytes(BlockKind kind, const Shape& shape, const Sharing& sharing);

// The passes of one layer on one rank, for any split of the layer, which are timed and checked.

class TimedBlock {
 public:
  TimedBlock() = default;
  virtual ~TimedBlock() = default;
  TimedBlock(const TimedBlock&) = delete;
  TimedBlock& operator=(const TimedBlock&) = delete;

  // Overwrites with NaN what passes write, and zeroes gradients, which are accumulated.
  virtual void reset() = 0;
  virtual std::vector<Result> results() const = 0;  // results of a forward and a backward

  const Pass& pass(Direction direction) const { return passes_[static_cast<std::size_t>(direction)]; }

 protected:
  Pass& of(Direction direction) { return passes_[static_cast<std::size_t>(direction)]; }

 private:
  std::array<Pass, 2> passes_;  // by direction
};

// A tensor-parallel block as passes that can be timed and checked: its operations in order, exchanges between them, and
// one list of tasks for each direction.
//
// Rows go through operations tile by tile, so that the exchange of one tile overlaps with the kernels of the next,
// except for operations that need all rows at once (the attention core). If such operations begin with a gather, all
// tiles are gathered first. Weight gradients come last because nothing waits for them.

// One rank's block. Its passes refer to it; the constructor's arguments must outlive it.
class Block final : public TimedBlock {
 public:
  Block(BlockKind kind, const NodeContext& context);
  void reset() override;
  std::vector<Result> results() const override;

 private:
  // An operation with its input and output: a single value if nothing is moved, or in context.
  struct Link {
    const workload::Operation* op;
    Value* in = nullptr;
    Value* out = nullptr;
    std::unique_ptr<Node> node = nullptr;  // empty for an exchange
  };
  using Links = std::span<const Link* const>;

  Value* first_value();
  Value* value_behind(const workload::Operation& op, Value* in);
  void make_gradients();
  std::unique_ptr<Node> node_of(const workload::Operation& op, Value* in, Value* out);
  // The block's input or output; `wide`: the kind of block in which it is 4 h wide and split by columns.
  workload::Parameter end(const char* name, BlockKind wide) const;
  bool has_input() const { return kind_ != BlockKind::embedding && kind_ != BlockKind::cross_entropy; }

  void add(Direction direction);
  void add_in_tiles(Direction direction, Links links);
  int add_exchange(Direction direction, const Link& link, const Tile& tile, int after);
  void add_regather(const Value& value);
  int add_kernel(Direction direction, const Link& link, const Tile& tile);

  const BlockKind kind_;
  const NodeContext context_;
  const std::vector<workload::Operation> operations_;
  std::optional<Logits> logits_;
  std::deque<Value> values_;
  std::vector<Link> links_;
  int gathered_ = kNothing;  // the last exchange that weight gradients wait for
};

}  // namespace lockstep::tp_linear
