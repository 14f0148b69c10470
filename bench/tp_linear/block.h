// The block that tp_linear_bench times, as a part of the step model.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/tp_linear/nodes.h"
#include "bench/tp_linear/pass.h"
#include "bench/tp_linear/shape.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::tp_linear {

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

// Bytes sent by all ranks together in a forward and a backward, with collectives of minimal traffic.
std::int64_t formula_bytes_of_all(BlockKind kind, const Shape& shape, const Sharing& sharing);

// Approximate bytes that the kernels of a forward and a backward read and write, which one rank holds all the time.
std::int64_t needed_bytes(BlockKind kind, const Shape& shape, const Sharing& sharing);

// The passes of one layer on one rank, for any split of the layer, which RankRun times and checks.

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
