#include "bench/tp_linear/part.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "schedules/step/count.h"
#include "workload/parameters.h"

namespace lockstep::tp_linear {
namespace {

using workload::Operation;
using Kind = workload::OperationKind;

workload::Model model_of(const Shape& shape) {
  workload::Model model;
  model.layers = 1;
  model.hidden = shape.hidden;
  model.heads = model.kv_heads = shape.heads;
  model.head_size = shape.hidden / shape.heads;
  model.ffn_hidden = shape.inner();
  model.vocabulary = shape.vocabulary;
  model.sequence = model.positions = shape.length;
  model.dropout = false;
  return model;
}

workload::Layout layout_of(const Shape& shape, const Sharing& sharing) {
  workload::Layout layout;
  layout.tp = sharing.ranks;
  layout.sequence_parallel = sharing.sequence_parallel;
  layout.microbatch_size = shape.batch;
  layout.compute = shape.dtype;
  return layout;
}

std::vector<Kind> kinds_of(BlockKind block) {
  switch (block) {
    case BlockKind::column:
      return {Kind::enter_mlp, Kind::up};
    case BlockKind::row:
      return {Kind::down, Kind::leave_mlp};
    case BlockKind::mlp:
      return {Kind::enter_mlp, Kind::up, Kind::down, Kind::leave_mlp};
    case BlockKind::attention:
      return {Kind::enter_attention, Kind::qkv, Kind::core, Kind::projection, Kind::leave_attention};
    case BlockKind::embedding:
      return {Kind::embed, Kind::leave_embedding};
    default:
      return {Kind::logits, Kind::exchange_stats, Kind::loss};
  }
}

std::vector<Operation> operations_around(BlockKind block, const workload::Model& model,
                                         const workload::Layout& layout) {
  if (block == BlockKind::embedding) return workload::embedding_operations(model, layout);
  if (block == BlockKind::cross_entropy) return workload::head_operations(model, layout);
  return workload::layer_operations(model, layout);
}

void leave_out_gelu(Operation& op) {
  if (op.kind == Kind::up) std::get<kernels::GemmForward>(op.forward[0].arguments).epilogue = kernels::Epilogue::bias;
  if (op.kind == Kind::down) {
    std::get<kernels::GemmInputGradient>(op.input_gradient[0].arguments).through_gelu = false;
  }
}

// The logits exist already: only the statistics remain of the operation that makes them, which a single rank does not
// need.
void leave_out_product(Operation& op) {
  if (op.kind != Kind::logits) return;
  op.forward.erase(op.forward.begin());
  op.input_gradient.clear();
  op.weight_gradient.clear();
  op.regather = {};
}

bool does_nothing(const Operation& op) {
  return op.forward.empty() && op.forward_exchange.comm == schedules::Comm::none &&
         op.backward_exchange.comm == schedules::Comm::none;
}

double sent_bytes(const workload::Exchange& exchange, int ranks) {
  return schedules::wire_bytes(exchange.comm, std::llround(exchange.bytes), ranks);
}

double bytes_of(const std::vector<workload::KernelCall>& calls) {
  double bytes = 0;
  for (const workload::KernelCall& call : calls) bytes += call.count * workload::cost_of(call).bytes;
  return bytes;
}

}  // namespace

std::vector<Operation> operations_of(BlockKind kind, const Shape& shape, const Sharing& sharing) {
  const std::vector<Kind> kinds = kinds_of(kind);
  std::vector<Operation> operations;
  for (Operation& op : operations_around(kind, model_of(shape), layout_of(shape, sharing))) {
    if (std::find(kinds.begin(), kinds.end(), op.kind) == kinds.end()) continue;
    if (kind == BlockKind::column || kind == BlockKind::row) leave_out_gelu(op);
    leave_out_product(op);
    if (!does_nothing(op)) operations.push_back(std::move(op));
  }
  return operations;
}

// Values are chosen such that products are about as large as their inputs.
LinearParameters parameters_of(Kind product, const Shape& shape) {
  const workload::LayerPlaces places(model_of(shape));
  const workload::WeightPlace place = product == Kind::qkv          ? places.qkv
                                      : product == Kind::projection ? places.projection
                                      : product == Kind::up         ? places.up
                                                                    : places.down;
  const auto all = workload::parameters_of(model_of(shape), layout_of(shape, {}), {.layers = 1});
  LinearParameters parameters{all[place.weight], all[place.bias()]};
  parameters.weight.deviation = 1 / std::sqrt(static_cast<float>(parameters.weight.shape[1]));
  parameters.bias.deviation = 1;
  return parameters;
}

std::int64_t formula_bytes_of_all(BlockKind kind, const Shape& shape, const Sharing& sharing) {
  double of_rank = 0;
  for (const Operation& op : operations_of(kind, shape, sharing)) {
    for (const workload::Exchange& exchange : {op.forward_exchange, op.backward_exchange, op.regather}) {
      of_rank += sent_bytes(exchange, sharing.ranks);
    }
  }
  return std::llround(of_rank * sharing.ranks);
}

std::int64_t needed_bytes(BlockKind kind, const Shape& shape, const Sharing& sharing) {
  double bytes = 0;
  for (const Operation& op : operations_of(kind, shape, sharing)) {
    bytes += bytes_of(op.forward) + bytes_of(op.input_gradient) + bytes_of(op.weight_gradient);
  }
  return std::llround(bytes);
}

}  // namespace lockstep::tp_linear
