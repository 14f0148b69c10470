// The attention core runs over whole sequences: it needs all rows, in their order.
#include <optional>

#include "bench/tp_linear/nodes.h"
#include "bench/tp_linear/row_order.h"
#include "kernels/attention/attention.h"

namespace lockstep::tp_linear {
namespace {

using parallel::Tensor;

class AttentionCore final : public Node {
 public:
  AttentionCore(const NodeContext& context, const workload::Operation& op, Value& in, Value& out)
      : context_(context),
        op_(op),
        in_(in),
        out_(out),
        lse_(context.make_f32(parallel::MemoryKind::activations, context.shape.rows() * shape().heads)) {
    if (!context.tiles().reorders()) return;
    order_.emplace(context.workspace, context.tiles());
    rows_.qkv = context.make(in.x.elems());
    rows_.o = context.make(out.x.elems());
    rows_.d_o = context.make(out.x.elems());
    rows_.d_qkv = context.make(in.x.elems());
  }

  void forward(const Tile& /*all*/) override {
    if (order_) order_->out_of_tiles(in_.x.in(), rows_.qkv.out());
    auto call = std::get<kernels::AttentionForward>(op_.forward[0].arguments);
    call.q = part_of_qkv(0);
    call.k = part_of_qkv(1);
    call.v = part_of_qkv(2);
    call.o = o().out();
    call.lse = lse_.out();
    kernels::run(call, context_.workspace.where);
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
    kernels::run(call, context_.workspace.where);
    if (order_) order_->into_tiles(rows_.d_qkv.in(), in_.d.out());
  }

  void reset() const override { spoil(context_, {&lse_, &rows_.qkv, &rows_.o, &rows_.d_o, &rows_.d_qkv}); }

 private:
  const kernels::AttentionShape& shape() const {
    return std::get<kernels::AttentionForward>(op_.forward[0].arguments).shape;
  }
  const Tensor& o() const { return order_ ? rows_.o : out_.x; }
  // Queries, keys and values of a token are contiguous.
  kernels::In part_of_qkv(std::int64_t part) const {
    return (order_ ? rows_.qkv : in_.x).in(part * shape().row(), shape().extent());
  }
  kernels::Out part_of_gradient(std::int64_t part) const {
    return (order_ ? rows_.d_qkv : in_.d).out(part * shape().row(), shape().extent());
  }

  const NodeContext& context_;
  const workload::Operation& op_;
  Value& in_;
  Value& out_;
  Tensor lse_;
  std::optional<RowOrder> order_;
  struct InOrder {
    Tensor qkv, o, d_o, d_qkv;
  } rows_;  // used if tiles reorder rows
};

}  // namespace

std::unique_ptr<Node> make_attention_core(const NodeContext& context, const workload::Operation& op, Value& in,
                                          Value& out) {
  return std::make_unique<AttentionCore>(context, op, in, out);
}

}  // namespace lockstep::tp_linear
