// A tensor-parallel block as passes that can be timed and checked: its operations in order, exchanges between them, and
// one list of tasks for each direction.
//
// Rows go through operations tile by tile, so that the exchange of one tile overlaps with the kernels of the next,
// except for operations that need all rows at once (the attention core). If such operations begin with a gather, all
// tiles are gathered first. Weight gradients come last because nothing waits for them.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/tp_linear/nodes.h"
#include "bench/tp_linear/shape.h"
#include "bench/tp_linear/timed_block.h"

namespace lockstep::tp_linear {

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
