// Goes through sequences: it needs all rows, in their order.
#include <optional>

#include "bench/parallel_layers/nodes.h"
#include "bench/parallel_layers/row_order.h"
#include "kernels/attention/attention.h"

namespace lockstep::layer_bench {
namespace {

using parallel::Tensor;

class AttentionCore final : public Node {
 public:
  AttentionCore(const Place& place, const workload::Operation& op, Value& in, Value& out)
      : place_(place),
        op_(op),
        in_(in),
        out_(out),
        lse_(place.make_f32(parallel::MemoryKind::activations, place.shape.rows() * shape().heads)) {
    if (!place.tiles().reorders()) return;
    order_.emplace(place.workspace, place.tiles());
    rows_.qkv = place.make(in.x.elems());
    rows_.o = place.make(out.x.elems());
    rows_.d_o = place.make(out.x.elems());
    rows_.d_qkv = place.make(in.x.elems());
  }

  void forward(const Tile& /*all*/) override {
    if (order_) order_->out_of_tiles(in_.x.in(), rows_.qkv.out());
    auto call = std::get<kernels::AttentionForward>(op_.forward[0].arguments);
    call.q = part_of_qkv(0);
    call.k = part_of_qkv(1);
    call.v = part_of_qkv(2);
    call.o = o().out();
    call.lse = lse_.out();
    kernels::run(call, place_.workspace.where);
    if (order_) order_->into_tiles(rows_.o.in(), out_.x.out());
  }

  void input_gradient(const Tile& /*all*/) override {
    if (order_) order_->out_of_tiles(out_.d.in(), rows_.d_o.out());
    auto call = std::get<kernels::AttentionBackward>(op_.input_gradient[0].arguments);
    call.q = part_of_qkv(0);
    call.k = part_of_qkv(1);
    call.v = part_of_qkv(2);
    call.o = o().in();
    call.lse = lse_.in();
    call.d_o = (order_ ? rows_.d_o : out_.d).in();
    call.dq = part_of_gradient(0);
    call.dk = part_of_gradient(1);
    call.dv = part_of_gradient(2);
    kernels::run(call, place_.workspace.where);
    if (order_) order_->into_tiles(rows_.d_qkv.in(), in_.d.out());
  }

  void reset() const override { spoil(place_, {&lse_, &rows_.qkv, &rows_.o, &rows_.d_o, &rows_.d_qkv}); }

 private:
  const kernels::AttentionShape& shape() const {
    return std::get<kernels::AttentionForward>(op_.forward[0].arguments).shape;
  }
  const Tensor& o() const { return order_ ? rows_.o : out_.x; }
  // Queries, keys and values of a token lie side by side.
  kernels::In part_of_qkv(std::int64_t part) const {
    return (order_ ? rows_.qkv : in_.x).in(part * shape().row(), shape().extent());
  }
  kernels::Out part_of_gradient(std::int64_t part) const {
    return (order_ ? rows_.d_qkv : in_.d).out(part * shape().row(), shape().extent());
  }

  const Place& place_;
  const workload::Operation& op_;
  Value& in_;
  Value& out_;
  Tensor lse_;
  std::optional<RowOrder> order_;
  struct InOrder {
    Tensor qkv, o, d_o, d_qkv;
  } rows_;  // where tiles reorder rows
};

}  // namespace

std::unique_ptr<Node> make_attention_core(const Place& place, const workload::Operation& op, Value& in, Value& out) {
  return std::make_unique<AttentionCore>(place, op, in, out);
}

}  // namespace lockstep::layer_bench
