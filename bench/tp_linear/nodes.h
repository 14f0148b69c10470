// The nodes of a tensor-parallel layer that a rank computes, and the tensors that they work on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "bench/tp_linear/pass.h"
#include "bench/tp_linear/shape.h"
#include "core/dtype.h"
#include "kernels/base/view.h"
#include "parallel/layers/linear.h"
#include "parallel/memory/memory.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::tp_linear {

// Tensors of random values, of which every rank makes its share, and their copies on the host.

inline constexpr std::uint64_t kSeed = 1;  // for all values

// Normal values with this deviation, rounded to the dtype; padding is zero. The same for every split.
parallel::Tensor random_share(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                              workload::TensorPlace place);
// The same if a share of `elems` elements is in `runs` of the whole: calls its argument with (share_begin, whole_begin,
// count).
using Runs = std::function<void(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>&)>;
parallel::Tensor random_runs(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                             std::int64_t elems, const Runs& runs);
// `count` random numbers in [0, below).
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below);
parallel::Tensor ids_of(parallel::Memory& memory, const std::vector<std::int32_t>& ids);

std::vector<float> host_values(parallel::Memory& memory, const parallel::Tensor& tensor);  // a tensor of f32 or bf16
void set_bytes(parallel::Memory& memory, const parallel::Tensor& tensor, unsigned char byte);

// A block's operations on one rank, bound to tensors: each is a node that runs the kernel calls of its operation on
// their data, for all rows or a tile of them.

// Everything that nodes need from the rank on which a block runs. A single rank has no exchanger.
struct NodeContext {
  const Shape& shape;
  Sharing sharing;
  const parallel::Workspace& workspace;
  Exchanger* exchanger = nullptr;

  workload::TensorPlace tensor() const { return {sharing.ranks, sharing.index}; }
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

}  // namespace lockstep::tp_linear
