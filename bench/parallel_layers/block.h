// A tensor-parallel block as passes that can be timed and checked: its operations in order, exchanges between them, and
// for each direction the one list of tasks that follows.
//
// Rows go through operations tile by tile, so that the exchange of one tile runs beside the kernels of the next, but
// for operations that need all rows at once (attention's core). What begins such a stretch with a gather gathers all
// tiles first. Gradients of weights come last: nothing waits for them.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/parallel_layers/nodes.h"
#include "bench/parallel_layers/shape.h"
#include "bench/parallel_layers/timed_block.h"

namespace lockstep::layer_bench {

// One rank's. Its passes refer to it, and it to what is passed.
class Block final : public TimedBlock {
 public:
  Block(BlockKind kind, const Place& place);
  void reset() override;
  std::vector<Result> results() const override;

 private:
  // An operation with what goes into it and what comes out: one value where nothing moves, or in place.
  struct Link {
    const workload::Operation* op;
    Value* in = nullptr;
    Value* out = nullptr;
    std::unique_ptr<Node> node = nullptr;  // none of an exchange
  };
  using Links = std::span<const Link* const>;

  Value* first_value();
  Value* value_behind(const workload::Operation& op, Value* in);
  void make_gradients();
  std::unique_ptr<Node> node_of(const workload::Operation& op, Value* in, Value* out);
  // The block's input or output; `wide`: the kind of block where it is 4 h wide, and shared out by columns.
  workload::Parameter end(const char* name, BlockKind wide) const;
  bool has_input() const { return kind_ != BlockKind::embedding && kind_ != BlockKind::cross_entropy; }

  void add(Direction direction);
  void add_in_tiles(Direction direction, Links links);
  int add_exchange(Direction direction, const Link& link, const Tile& tile, int after);
  void add_regather(const Value& value);
  int add_kernel(Direction direction, const Link& link, const Tile& tile);

  const BlockKind kind_;
  const Place place_;
  const std::vector<workload::Operation> operations_;
  std::optional<Logits> logits_;
  std::deque<Value> values_;
  std::vector<Link> links_;
  int gathered_ = kNothing;  // the last exchange that gradients of weights wait for
};

}  // namespace lockstep::layer_bench
