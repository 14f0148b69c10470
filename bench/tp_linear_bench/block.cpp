#include "bench/tp_linear_bench/block.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/error.h"
#include "parallel/layers/layers.h"
#include "schedules/step/breakdown.h"
#include "workload/parameters.h"

namespace lockstep::tp_linear {

RowOrder::RowOrder(const parallel::Workspace& workspace, const Tiles& tiles) : workspace_(workspace) {
  const std::vector<std::int32_t> order = tiles.order();
  std::vector<std::int32_t> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    places[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  }
  from_ = ids_of(workspace.memory, order);
  to_ = ids_of(workspace.memory, places);
}

// Copies rows with the kernel of an embedding, which looks rows up.
void RowOrder::copy(kernels::In from_rows, kernels::In from, kernels::Out to) const {
  const std::int64_t rows = from_rows.elems;
  const parallel::EmbeddingLayer rows_of{rows, rows, from.elems / rows, {rows, rows, 0}};
  rows_of.forward(workspace_, from_rows, from, {}, to);
}

std::vector<float> out_of_tiles(const Tiles& tiles, const std::vector<float>& in_tiles) {
  const std::vector<std::int32_t> order = tiles.order();
  const std::size_t columns = in_tiles.size() / order.size();
  std::vector<float> rows(in_tiles.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = in_tiles.begin() + static_cast<std::ptrdiff_t>(i * columns);
    std::copy_n(from, columns,
                rows.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(order[i]) * columns));
  }
  return rows;
}

namespace {

using schedules::Comm;
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
  const workload::LayerIndices places(model_of(shape));
  const workload::WeightIndex place = product == Kind::qkv          ? places.qkv
                                      : product == Kind::projection ? places.projection
                                      : product == Kind::up         ? places.up
                                                                    : places.down;
  const auto all = workload::parameters_of(model_of(shape), layout_of(shape, {}), {.layers = 1});
  LinearParameters parameters{all[place.weight], all[place.bias()]};
  parameters.weight.deviation = 1 / std::sqrt(static_cast<float>(parameters.weight.shape[1]));
  parameters.bias.deviation = 1;
  return parameters;
}

std::array<double, 2> formula_bytes_of(BlockKind kind, const Shape& shape, const Sharing& sharing) {
  std::array<double, 2> bytes = {};
  for (const Operation& op : operations_of(kind, shape, sharing)) {
    bytes[0] += sent_bytes(op.forward_exchange, sharing.ranks);
    bytes[1] += sent_bytes(op.backward_exchange, sharing.ranks) + sent_bytes(op.regather, sharing.ranks);
  }
  return bytes;
}

std::int64_t formula_bytes_of_all(BlockKind kind, const Shape& shape, const Sharing& sharing) {
  const std::array<double, 2> bytes = formula_bytes_of(kind, shape, sharing);
  return std::llround((bytes[0] + bytes[1]) * sharing.ranks);
}

std::int64_t needed_bytes(BlockKind kind, const Shape& shape, const Sharing& sharing) {
  double bytes = 0;
  for (const Operation& op : operations_of(kind, shape, sharing)) {
    bytes += bytes_of(op.forward) + bytes_of(op.input_gradient) + bytes_of(op.weight_gradient);
  }
  return std::llround(bytes);
}

namespace {

const workload::Exchange& exchange_of(const Operation& op, Direction direction) {
  return direction == Direction::forward ? op.forward_exchange : op.backward_exchange;
}

const std::vector<workload::KernelCall>& kernels_of(const Operation& op, Direction direction) {
  return direction == Direction::forward ? op.forward : op.input_gradient;
}

bool is_exchange(const Operation& op) {
  return op.forward_exchange.comm != Comm::none || op.backward_exchange.comm != Comm::none;
}

// True for exchanges that change how many rows a rank has; an all-reduce is in context and does not.
bool moves_rows(const Operation& op) {
  return is_exchange(op) && op.forward_exchange.comm != Comm::all_reduce &&
         op.backward_exchange.comm != Comm::all_reduce;
}

TaskKind kind_of(const workload::KernelCall& call) {
  return class_of(call) == workload::KernelClass::product ? TaskKind::product : TaskKind::other_kernel;
}

std::int64_t output_columns(const Operation& op) {
  const auto& call = op.forward.front().arguments;
  if (const auto* product = std::get_if<kernels::GemmForward>(&call)) return product->shape.outputs;
  if (const auto* core = std::get_if<kernels::AttentionForward>(&call)) return core->shape.row();
  if (const auto* embed = std::get_if<kernels::EmbeddingForward>(&call)) return embed->columns;
  LOCKSTEP_CHECK(std::holds_alternative<kernels::CrossEntropyStats>(call), "an operation of a block");
  return 3;  // maximum, sum, the target's logit
}

// Piece `tile.number` of the tiles of this height.
struct Piece {
  std::int64_t first;
  std::int64_t elems;
};
Piece piece_of(const parallel::Tensor& tensor, const Tile& tile, std::int64_t all_rows) {
  const std::int64_t elems = tensor.elems() * tile.rows / all_rows;
  return {tile.number * elems, elems};
}

}  // namespace

Block::Block(BlockKind kind, const NodeContext& context)
    : kind_(kind), context_(context), operations_(operations_of(kind, context.shape, context.sharing)) {
  if (kind == BlockKind::cross_entropy) logits_.emplace(context_);
  Value* at = first_value();
  for (const Operation& op : operations_) {
    links_.push_back({&op, at, value_behind(op, at)});
    at = links_.back().out;
  }
  if (kind != BlockKind::cross_entropy) make_gradients();
  for (Link& link : links_) link.node = node_of(*link.op, link.in, link.out);
  add(Direction::forward);
  add(Direction::backward);
}

workload::Parameter Block::end(const char* name, BlockKind wide) const {
  const Shape& shape = context_.shape;
  if (kind_ == wide) {
    return {.name = name, .shape = {shape.rows(), shape.inner()}, .split = workload::Split::columns, .deviation = 1};
  }
  const auto split = context_.sharing.sequence_parallel ? workload::Split::rows : workload::Split::none;
  return {.name = name, .shape = {shape.rows(), shape.hidden}, .split = split, .deviation = 1};
}

Value* Block::first_value() {
  if (!has_input()) return nullptr;
  Value& value = values_.emplace_back();
  const workload::Parameter x = end("x", BlockKind::row);
  const bool is_wide = kind_ == BlockKind::row;
  value.columns = is_wide ? context_.shape.inner() / context_.sharing.ranks : context_.shape.hidden;
  value.x = is_wide ? context_.random_in_tiles(x) : context_.random(x);
  return &value;
}

Value* Block::value_behind(const Operation& op, Value* in) {
  if (op.kind == workload::OperationKind::loss) return nullptr;
  if (is_exchange(op) && !moves_rows(op)) return in;
  Value& value = values_.emplace_back();
  if (is_exchange(op)) {
    const std::int64_t ranks = context_.sharing.ranks;
    const bool gathers = op.forward_exchange.comm == Comm::all_gather;
    value.columns = in->columns;
    value.shares = in;
    value.x = context_.workspace.memory.make(parallel::MemoryKind::activations, in->x.dtype(),
                                             gathers ? in->x.elems() * ranks : in->x.elems() / ranks);
    return &value;
  }
  value.columns = output_columns(op);
  const std::int64_t elems = context_.shape.rows() * value.columns;
  const bool is_f32 = std::holds_alternative<kernels::CrossEntropyStats>(op.forward.front().arguments);
  value.x = is_f32 ? context_.make_f32(parallel::MemoryKind::activations, elems) : context_.make(elems);
  const auto* const product = std::get_if<kernels::GemmForward>(&op.forward.front().arguments);
  if (product != nullptr && product->epilogue == kernels::Epilogue::bias_gelu) value.pre = context_.make(elems);
  return &value;
}

// The last gradient comes from after the block.
void Block::make_gradients() {
  const workload::Parameter dy = end("dy", BlockKind::column);
  values_.back().d = kind_ == BlockKind::column ? context_.random_in_tiles(dy) : context_.random(dy);
  for (Value& value : values_) {
    if (!value.d.given()) value.d = context_.make(value.x.elems());
  }
  for (const Link& link : links_) {
    if (link.op->regather.comm != Comm::none) link.in->again = context_.make(link.in->x.elems());
  }
}

std::unique_ptr<Node> Block::node_of(const Operation& op, Value* in, Value* out) {
  if (is_exchange(op)) return nullptr;
  const auto& call = op.forward.front().arguments;
  if (std::holds_alternative<kernels::GemmForward>(call)) return make_product(context_, op, *in, *out);
  if (std::holds_alternative<kernels::AttentionForward>(call)) return make_attention_core(context_, op, *in, *out);
  if (std::holds_alternative<kernels::EmbeddingForward>(call)) return make_embedding(context_, op, *out);
  if (out != nullptr) return make_statistics(context_, op, *logits_, *out);
  return make_loss(context_, op, *logits_, in);
}

void Block::add(Direction direction) {
  std::vector<const Link*> links;
  for (const Link& link : links_) links.push_back(&link);
  if (direction == Direction::backward) std::reverse(links.begin(), links.end());
  for (auto begin = links.begin(); begin != links.end();) {
    const auto whole = std::find_if(begin, links.end(), [](const Link* link) { return link->op->core; });
    if (begin != whole) add_in_tiles(direction, Links(begin, whole));
    if (whole == links.end()) break;
    add_kernel(direction, **whole, context_.tiles().whole());
    begin = whole + 1;
  }
  if (direction == Direction::forward) return;
  for (const Link* link : links) {
    if (link->op->weight_gradient.empty()) continue;
    of(direction).add(
        kind_of(link->op->weight_gradient.front()), [link] { link->node->weight_gradient(); }, gathered_);
  }
}

void Block::add_in_tiles(Direction direction, Links links) {
  const auto exchanges = [&](const Link* link) { return exchange_of(*link->op, direction).comm != Comm::none; };
  const auto computes = [&](const Link* link) { return !kernels_of(*link->op, direction).empty(); };
  const bool overlaps =
      std::any_of(links.begin(), links.end(), exchanges) && std::any_of(links.begin(), links.end(), computes);
  std::vector<Tile> tiles{context_.tiles().whole()};
  if (overlaps) tiles = context_.tiles().all();
  if (exchanges(links.front())) {
    for (Tile& tile : tiles) tile.ready = add_exchange(direction, *links.front(), tile, kNothing);
    if (direction == Direction::backward) gathered_ = tiles.back().ready;
    links = links.subspan(1);
  }
  for (const Link* link : links) {
    if (direction == Direction::backward && link->op->regather.comm != Comm::none) add_regather(*link->in);
  }
  for (Tile tile : tiles) {
    int last = kNothing;
    for (const Link* link : links) {
      if (exchanges(link)) tile.ready = add_exchange(direction, *link, tile, last);
      if (computes(link)) last = add_kernel(direction, *link, tile);
    }
  }
}

int Block::add_exchange(Direction direction, const Link& link, const Tile& tile, int after) {
  const bool is_forward = direction == Direction::forward;
  const parallel::Tensor& from = is_forward ? link.in->x : link.out->d;
  const parallel::Tensor& to = is_forward ? link.out->x : link.in->d;
  const Piece what = piece_of(from, tile, context_.shape.rows());
  const Piece where = piece_of(to, tile, context_.shape.rows());
  return of(direction).add(
      TaskKind::exchange,
      context_.exchanger->make(exchange_of(*link.op, direction).comm, from.inout(what.first, what.elems),
                               to.out(where.first, where.elems)),
      after);
}

void Block::add_regather(const Value& value) {
  const std::int64_t rows = context_.shape.rows();
  for (const Tile& tile : context_.tiles().all()) {
    const Piece own = piece_of(value.shares->x, tile, rows);
    const Piece all = piece_of(value.again, tile, rows);
    gathered_ = of(Direction::backward)
                    .add(TaskKind::exchange,
                         context_.exchanger->make(Comm::all_gather, value.shares->x.inout(own.first, own.elems),
                                                  value.again.out(all.first, all.elems)));
  }
}

int Block::add_kernel(Direction direction, const Link& link, const Tile& tile) {
  Node* const node = link.node.get();
  const auto run = [node, tile, direction] {
    direction == Direction::forward ? node->forward(tile) : node->input_gradient(tile);
  };
  return of(direction).add(kind_of(kernels_of(*link.op, direction).front()), run, tile.ready);
}

void Block::reset() {
  for (const Value& value : values_) {
    const bool is_input = has_input() && &value == &values_.front();
    if (!is_input) spoil(context_, {&value.x});
    if (&value != &values_.back()) spoil(context_, {&value.d});
    spoil(context_, {&value.pre, &value.again});
  }
  for (const Link& link : links_) {
    if (link.node) link.node->reset();
  }
}

std::vector<Result> Block::results() const {
  std::vector<Result> results;
  if (kind_ != BlockKind::cross_entropy) {
    results.push_back(
        {.whole = end("y", BlockKind::column), .found = &values_.back().x, .in_tiles = kind_ == BlockKind::column});
  }
  if (has_input()) {
    results.push_back(
        {.whole = end("dx", BlockKind::row), .found = &values_.front().d, .in_tiles = kind_ == BlockKind::row});
  }
  for (const Link& link : links_) {
    if (link.node) link.node->add_results(results);
  }
  return results;
}

}  // namespace lockstep::tp_linear
