#include <utility>

#include "bench/tp_linear/nodes.h"
#include "bench/tp_linear/part.h"
#include "bench/tp_linear/row_order.h"
#include "bench/tp_linear/values.h"
#include "kernels/gemm/gemm.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::tp_linear {
namespace {

using parallel::MemoryKind;

// The calls of its operation on the rows of a tile.
class Product final : public Node {
 public:
  Product(const NodeContext& context, const workload::Operation& op, Value& in, Value& out)
      : context_(context),
        op_(op),
        in_(in),
        out_(out),
        whole_(parameters_of(op.kind, context.shape)),
        adds_bias_(whole_.weight.split == workload::Split::rows || context.sharing.index == 0),
        weight_(context.random(whole_.weight)),
        bias_(context.random(whole_.bias)),
        d_weight_(context.make_f32(MemoryKind::gradients, weight_.elems())),
        d_bias_(context.make_f32(MemoryKind::gradients, bias_.elems())) {}

  void forward(const Tile& tile) override {
    auto call = std::get<kernels::GemmForward>(op_.forward[0].arguments);
    call.shape.rows = tile.rows;
    if (!adds_bias_) call.epilogue = kernels::Epilogue::none;
    call.x = in_.x_in(tile);
    call.w = weight_.in();
    call.bias = adds_bias_ ? bias_.in() : kernels::In{};
    call.pre = out_.pre.given() ? out_.pre.out(tile.first * out_.columns, tile.rows * out_.columns) : kernels::Out{};
    call.y = out_.x_out(tile);
    kernels::run(call, context_.workspace.where);
  }

  void input_gradient(const Tile& tile) override {
    auto call = std::get<kernels::GemmInputGradient>(op_.input_gradient[0].arguments);
    call.shape.rows = tile.rows;
    call.dy = out_.d_in(tile);
    call.w = weight_.in();
    call.pre = in_.pre.given() ? in_.pre.in(tile.first * in_.columns, tile.rows * in_.columns) : kernels::In{};
    call.dx = in_.d_out(tile);
    kernels::run(call, context_.workspace.where);
  }

  void weight_gradient() override {
    auto call = std::get<kernels::GemmWeightGradient>(op_.weight_gradient[0].arguments);
    call.x = (in_.again.given() ? in_.again : in_.x).in();
    call.dy = out_.d.in();
    call.dw = d_weight_.inout();
    call.dbias = d_bias_.inout();
    kernels::run(call, context_.workspace.where);
  }

  void reset() const override {
    for (const parallel::Tensor* sum : {&d_weight_, &d_bias_}) set_bytes(context_.workspace.memory, *sum, 0);
  }
  void add_results(std::vector<Result>& results) const override {
    results.push_back({whole_.weight, &d_weight_});
    results.push_back({whole_.bias, &d_bias_});
  }

 private:
  const NodeContext& context_;
  const workload::Operation& op_;
  Value& in_;
  Value& out_;
  const LinearParameters whole_;
  const bool adds_bias_;  // if outputs are terms of a sum, one rank adds the bias
  parallel::Tensor weight_, bias_, d_weight_, d_bias_;
};

}  // namespace

std::unique_ptr<Node> make_product(const NodeContext& context, const workload::Operation& op, Value& in, Value& out) {
  return std::make_unique<Product>(context, op, in, out);
}

parallel::Tensor NodeContext::make(std::int64_t elems) const {
  return workspace.memory.make(MemoryKind::activations, shape.dtype, elems);
}

parallel::Tensor NodeContext::make_f32(MemoryKind kind, std::int64_t elems) const {
  return workspace.memory.make(kind, core::DType::f32, elems);
}

parallel::Tensor NodeContext::random(const workload::Parameter& whole) const {
  return random_share(workspace.memory, shape.dtype, whole, tensor());
}

parallel::Tensor NodeContext::random_in_tiles(const workload::Parameter& whole) const {
  parallel::Tensor rows = random(whole);
  if (!tiles().reorders()) return rows;
  parallel::Tensor in_tiles = make(rows.elems());
  RowOrder(workspace, tiles()).into_tiles(rows.in(), in_tiles.out());
  parallel::finish(workspace.where);  // frees the order
  return in_tiles;
}

void spoil(const NodeContext& context, std::initializer_list<const parallel::Tensor*> tensors) {
  for (const parallel::Tensor* tensor : tensors) {
    if (tensor->given()) set_bytes(context.workspace.memory, *tensor, kSpoilt);
  }
}

}  // namespace lockstep::tp_linear
