#include "bench/step/layer_part.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bench/step/values.h"
#include "collectives/backends/backend.h"
#include "core/device.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/wait.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/copy/copy.h"
#include "kernels/gemm/gemm.h"
#include "parallel/parameters/device_memory.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/rewrite.h"
#include "trainer/step/train_step.h"
#include "workload/parameters.h"

namespace lockstep::step_bench {
namespace {

using parallel::MemoryKind;
using parallel::Tensor;
using trainer::GptStage;
using workload::Side;
using Kind = workload::OperationKind;

trainer::GptShape shape_of(const LayerBlock& block, std::int32_t rank) {
  const workload::Coordinates at = coordinates_of(block.layout, rank);
  return {.model = block.model,
          .layout = block.layout,
          .tensor = {block.layout.tp, at.tp, block.layout.grid},
          .context = at.cp,
          .expert_rank = at.ep,
          .causal = block.causal,
          .row_tiles = block.row_tiles};
}

bool uses(const LayerBlock& block, std::size_t parameter) {
  if (stage_of(block.block).layers == 0) return true;
  const std::vector<Kind> kinds = kinds_of(block.block);
  const workload::LayerIndices indices(block.model, block.layout.ep, block.layout.mlp_tiles);
  const auto is_of = [&](Kind kind, const workload::WeightIndex& linear) {
    const bool runs = std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    return runs && linear.weight <= parameter && parameter < linear.end();
  };
  if (block.model.experts > 0) return parameter >= indices.router.weight;
  return is_of(Kind::qkv, indices.qkv) || is_of(Kind::projection, indices.projection) || is_of(Kind::up, indices.up) ||
         is_of(Kind::down, indices.down);
}

bool is_exchange(const schedules::Task& task) {
  return task.comm != schedules::Comm::none;
}

std::size_t direction_of(const schedules::Task& task) {
  return workload::piece_named(task.what).side == Side::forward ? 0 : 1;
}

collectives::Kind kind_of(schedules::Comm comm) {
  using collectives::Kind;
  switch (comm) {
    case schedules::Comm::all_reduce:
      return Kind::all_reduce;
    case schedules::Comm::all_gather:
      return Kind::all_gather;
    case schedules::Comm::reduce_scatter:
      return Kind::reduce_scatter;
    case schedules::Comm::broadcast:
      return Kind::broadcast;
    case schedules::Comm::reduce:
      return Kind::reduce;
    default:
      LOCKSTEP_CHECK(comm == schedules::Comm::all_to_all, "a collective of blocks of one size");
      return Kind::all_to_all;
  }
}

collectives::Operation operation_of(schedules::Comm comm, const GptStage::Exchange& exchange, std::int64_t ranks) {
  using schedules::Comm;
  const core::DType dtype = exchange.output.dtype;
  if (exchange.matrix != nullptr) {
    return {.kind = collectives::Kind::all_to_all_v,
            .dtype = comm == Comm::shift ? core::DType::u8 : dtype,
            .matrix = exchange.matrix};
  }
  const bool counts_input = comm == Comm::all_gather || comm == Comm::all_reduce;
  const std::int64_t elems = counts_input ? exchange.input.elems : exchange.output.elems;
  return {.kind = kind_of(comm),
          .count = comm == Comm::all_to_all ? elems / ranks : elems,
          .dtype = dtype,
          .root = exchange.root,
          .in_place = comm == Comm::all_reduce};
}

std::int64_t bytes_of(const auto& view) {
  return static_cast<std::int64_t>(kernels::size_bytes(view.dtype, view.elems));
}

}  // namespace

std::vector<Kind> kinds_of(GptStage::Block block) {
  switch (block) {
    case GptStage::Block::core:
      return {Kind::split_heads, Kind::exchange_context, Kind::core, Kind::merge_context, Kind::scores, Kind::values};
    case GptStage::Block::attention:
      return {Kind::enter_attention, Kind::qkv, Kind::core, Kind::projection, Kind::leave_attention};
    case GptStage::Block::mlp:
      return {Kind::router,     Kind::permute, Kind::dispatch,  Kind::shared_experts, Kind::enter_mlp, Kind::up,
              Kind::activation, Kind::down,    Kind::leave_mlp, Kind::combine,        Kind::unpermute};
    case GptStage::Block::up:
      return {Kind::enter_mlp, Kind::up};
    case GptStage::Block::down:
      return {Kind::down, Kind::leave_mlp};
    case GptStage::Block::embedding:
      return {Kind::embed, Kind::leave_embedding};
    default:
      return {Kind::logits, Kind::exchange_stats, Kind::loss};
  }
}

workload::StageSlice stage_of(GptStage::Block block) {
  if (block == GptStage::Block::embedding) return {.embedding = true};
  if (block == GptStage::Block::loss) return {.head = true};
  return {.layers = 1};
}

schedules::Step step_of(const LayerBlock& block) {
  schedules::Step step =
      trainer::make_part_step(block.model, block.layout, stage_of(block.block), kinds_of(block.block));
  if (block.block == GptStage::Block::loss) {
    schedules::leave_out(step, [](const schedules::Task& task) { return direction_of(task) == 1; });
  }
  return step;
}

std::vector<backends::Channel> channels_of(const schedules::Step& step) {
  std::vector<backends::Channel> channels;
  for (const schedules::RankStep& rank : step.of_rank) {
    for (const schedules::Task& task : rank.tasks) {
      if (!is_exchange(task)) continue;
      const backends::Channel& members = step.groups[static_cast<std::size_t>(task.peer)].ranks;
      if (std::find(channels.begin(), channels.end(), members) == channels.end()) channels.push_back(members);
    }
  }
  return channels;
}

std::array<double, 2> wire_bytes_of(const LayerBlock& block) {
  const schedules::Step step = step_of(block);
  std::array<double, 2> bytes = {};
  for (const schedules::Task& task : step.of_rank.front().tasks) {
    if (!is_exchange(task)) continue;
    const std::int64_t ranks = step.groups[static_cast<std::size_t>(task.peer)].size();
    bytes[direction_of(task)] += schedules::wire_bytes(task.comm, task.amount, ranks);
  }
  return bytes;
}

void check_algorithm(const LayerBlock& block, const std::string& algorithm) {
  if (algorithm == "auto") return;
  const schedules::Step step = step_of(block);
  for (const schedules::Task& task : step.of_rank.front().tasks) {
    if (!is_exchange(task) || collectives::has_root(kind_of(task.comm))) continue;
    const schedules::Group& group = step.groups[static_cast<std::size_t>(task.peer)];
    backends::plan_for({.kind = kind_of(task.comm), .count = 1}, static_cast<int>(group.ranks.size()), algorithm);
  }
}

std::vector<workload::Parameter> parameters_of(const LayerBlock& block, std::int32_t rank) {
  const workload::Layout& layout = block.layout;
  std::vector<workload::Parameter> all =
      workload::parameters_of(block.model, layout, stage_of(block.block), coordinates_of(layout, rank).ep);
  for (std::size_t p = 0; p < all.size(); ++p) {
    workload::Parameter& parameter = all[p];
    if (!uses(block, p)) parameter = {.name = parameter.name, .shape = {1}};
    const bool is_matrix = parameter.shape.size() > 1;
    parameter.deviation = is_matrix ? 1 / std::sqrt(static_cast<float>(parameter.shape.back())) : 0.1F;
    if (parameter.name.ends_with(".router.weight")) parameter.drawn_as = "router";
  }
  return all;
}

bool is_used(const workload::Parameter& parameter) {
  return parameter.shape != std::vector<std::int64_t>{1};
}

std::vector<float> random_rows(const std::string& name, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  parallel::fill_initial_values({.name = name, .shape = {count}, .deviation = 1}, kLayerSeed, 0, values);
  return values;
}

LayerRank::LayerRank(const LayerBlock& block, std::int32_t rank, const LayerInputs& inputs,
                     const parallel::Workspace& workspace, const backends::MeshRank* mesh, const std::string& algorithm)
    : block_(block),
      workspace_(workspace),
      shape_(shape_of(block, rank)),
      step_(step_of(block)),
      tasks_(step_.of_rank[static_cast<std::size_t>(rank)]),
      x_(tensor_of(inputs.x)),
      dy_(tensor_of(inputs.dy)) {
  const std::vector<backends::Channel> channels = channels_of(step_);
  for (std::size_t c = 0; c < channels.size(); ++c) {
    const bool is_member = std::find(channels[c].begin(), channels[c].end(), rank) != channels[c].end();
    if (is_member) exchangers_[channels[c]] = std::make_unique<Exchanger>(*mesh, c, algorithm);
  }
  std::vector<workload::Parameter> parameters = parameters_of(block, rank);
  std::vector<std::vector<std::size_t>> buckets(1, std::vector<std::size_t>(parameters.size()));
  std::iota(buckets.front().begin(), buckets.front().end(), 0);
  store_ = std::make_unique<parallel::ParameterStore>(
      workspace.memory, workspace.where, std::move(parameters), shape_.tensor, std::move(buckets),
      parallel::StoreOptions{.compute = block.layout.compute, .optimizer = kernels::OptimizerKind::sgd});
  store_->initialize(kLayerSeed);
  stage_ = std::make_unique<GptStage>(shape_, stage_of(block.block), *store_, workspace.memory, workspace.where);
  stage_->give(0, inputs.ids, inputs.ids);
  make_passes();
}

Tensor LayerRank::buffer(core::DType dtype, std::int64_t elems) const {
  return workspace_.memory.make(MemoryKind::buffers, dtype, elems);
}

Tensor LayerRank::tensor_of(const std::vector<float>& values) const {
  if (values.empty()) return {};
  Tensor tensor = buffer(shape_.layout.compute, static_cast<std::int64_t>(values.size()));
  parallel::write_rounded(workspace_.memory.device(), tensor.out(), values);
  return tensor;
}

bool LayerRank::begins_backward() const {
  return block_.block == GptStage::Block::core && block_.layout.cp > 1;
}

void LayerRank::make_passes() {
  const bool begins = begins_backward();
  if (begins) {
    for (Passes* passes : {&whole_, &kernels_}) {
      passes->back().add(
          false, share_of(Kind::none, false), [this] { ends().begin_backward(); }, kNothing);
    }
  }
  if (shape_.row_tiles > 1) {
    for (const std::size_t direction : {0U, 1U}) make_tiled_passes(direction);
    return;
  }
  std::vector<int> number_in_pass;
  for (const schedules::Task& task : tasks_.tasks) {
    const std::size_t direction = direction_of(task);
    int after = begins && direction == 1 && is_exchange(task) ? 0 : kNothing;
    for (const std::uint32_t earlier : tasks_.after_of(task)) {
      const schedules::Task& other = tasks_.tasks[earlier];
      const bool is_of_other_thread = is_exchange(other) != is_exchange(task);
      if (is_of_other_thread && direction_of(other) == direction) after = std::max(after, number_in_pass[earlier]);
    }
    number_in_pass.push_back(add(direction, task, after));
  }
}

std::size_t LayerRank::share_of(Kind kind, bool moves) const {
  if (block_.share_of) return block_.share_of(kind, moves);
  const bool is_core = kind == Kind::core || kind == Kind::scores || kind == Kind::values;
  const bool is_linear = kind == Kind::qkv || kind == Kind::projection || kind == Kind::up || kind == Kind::down;
  const bool is_product = is_linear || (is_core && block_.block == GptStage::Block::core);
  return static_cast<std::size_t>(moves ? TaskKind::exchange : is_product ? TaskKind::product : TaskKind::other_kernel);
}

int LayerRank::add(std::size_t direction, const schedules::Task& task, int after) {
  Piece& piece = pieces_.emplace_back(Piece{task});
  if (is_exchange(task)) piece.exchanger = exchangers_.at(members_of(task)).get();
  const auto share = [&](bool moves) { return share_of(workload::piece_named(task.what).kind, moves); };
  const bool moves = is_exchange(task);
  const auto run = [this, &piece](bool sends) {
    return [this, &piece, sends] { is_exchange(piece.task) ? exchange(piece, sends) : stage_->run(piece.task); };
  };
  const std::function<void()> alone = run(false);
  kernels_[direction].add(
      false, share(false),
      [alone, moves, &piece] {
        const auto start = core::Clock::now();
        alone();
        if (!moves) piece.us.push_back(core::us_between(start, core::Clock::now()));
      },
      kNothing);
  return whole_[direction].add(moves, share(moves), run(true), after);
}

// Gradients of weights come last, because nothing waits for them.
void LayerRank::make_tiled_passes(std::size_t direction) {
  std::vector<schedules::Task> in_tiles;
  std::vector<schedules::Task> weight_gradients;
  int gathered = kNothing;
  const auto add_tiles = [&] {
    gathered = std::max(gathered, add_in_tiles(direction, in_tiles));
    in_tiles.clear();
  };
  for (const schedules::Task& task : tasks_.tasks) {
    if (direction_of(task) != direction) continue;
    const workload::PieceName what = workload::piece_named(task.what);
    if (what.side == Side::weight_gradient) {
      weight_gradients.push_back(task);
    } else if (what.kind == Kind::core) {
      add_tiles();
      add(direction, task, kNothing);
    } else {
      in_tiles.push_back(task);
    }
  }
  add_tiles();
  for (const schedules::Task& task : weight_gradients) add(direction, task, gathered);
}

int LayerRank::add_in_tiles(std::size_t direction, const std::vector<schedules::Task>& tasks) {
  const bool exchanges = std::any_of(tasks.begin(), tasks.end(), is_exchange);
  const auto tiles = static_cast<std::size_t>(exchanges ? shape_.row_tiles : 1);
  const auto tile_of = [&](schedules::Task task, std::size_t t) {
    workload::PieceName what = workload::piece_named(task.what);
    if (exchanges) what.turn = static_cast<std::uint16_t>(t + 1);
    task.what = workload::what_of(what);
    return task;
  };
  const auto is_regather = [](const schedules::Task& task) {
    return workload::piece_named(task.what).side == Side::regather;
  };
  std::vector<int> ready(tiles, kNothing);  // the exchange that a tile's kernels wait for
  int gathered = kNothing;
  const auto first_kernel = std::find_if_not(tasks.begin(), tasks.end(), is_exchange);
  std::vector<schedules::Task> others(first_kernel, tasks.end());
  std::erase_if(others, is_regather);
  for (auto task = tasks.begin(); task != tasks.end(); ++task) {
    if (task >= first_kernel && !is_regather(*task)) continue;
    for (std::size_t t = 0; t < tiles; ++t) {
      gathered = add(direction, tile_of(*task, t), kNothing);
      if (task < first_kernel) ready[t] = gathered;
    }
  }
  for (std::size_t t = 0; t < tiles; ++t) {
    int last = kNothing;
    for (const schedules::Task& task : others) {
      const bool moves = is_exchange(task);
      int& added = moves ? ready[t] : last;
      added = add(direction, tile_of(task, t), moves ? last : ready[t]);
    }
  }
  return gathered;
}

// A router's result is the same in every pass, so that each size is prepared once.
void LayerRank::exchange(Piece& piece, bool moves) {
  const schedules::Task& task = piece.task;
  if (const GptStage::Exchange counts = stage_->exchange_counts(task); counts.input.given()) {
    const collectives::Operation gather{
        .kind = collectives::Kind::all_gather, .count = counts.input.elems, .dtype = counts.input.dtype};
    piece.exchanger->prepared(gather, "auto").run(counts.input.data, counts.output.data);
    stage_->counts_exchanged(task);
  }
  const GptStage::Exchange data = stage_->exchange(task);
  piece.operation = operation_of(task.comm, data, static_cast<std::int64_t>(members_of(task).size()));
  piece.input_bytes = bytes_of(data.input);
  piece.output_bytes = bytes_of(data.output);
  if (moves) piece.exchanger->run(piece.operation, data.input.data, data.output.data);
  stage_->exchanged(task);
}

void LayerRank::make_exchange_passes() {
  const auto zeroed = [&](std::int64_t bytes) {
    buffers_.push_back(
        workspace_.memory.make_zeroed(MemoryKind::buffers, core::DType::u8, std::max<std::int64_t>(bytes, 1)));
    return buffers_.back().data();
  };
  for (const Piece& piece : pieces_) {
    if (!is_exchange(piece.task)) continue;
    void* const output = zeroed(piece.output_bytes);
    const void* const input = piece.operation.in_place ? output : zeroed(piece.input_bytes);
    exchanges_[direction_of(piece.task)].add(true, share_of(workload::piece_named(piece.task.what).kind, true),
                                             piece.exchanger->make(piece.operation, input, output), kNothing);
  }
}

const Pass& LayerRank::pass(Mode mode, Direction direction) const {
  const Passes& passes = is_whole(mode) ? whole_ : mode == Mode::kernels ? kernels_ : exchanges_;
  return passes[static_cast<std::size_t>(direction)];
}

void LayerRank::begin(Mode mode) {
  if (mode == Mode::exchanges) {
    if (buffers_.empty()) make_exchange_passes();
    return;
  }
  store_->zero_gradients();
  stage_->begin_step(trainer::Mode::train, 1);
  stage_->load(0);
  const GptStage::BlockEnds at = ends();
  for (const auto& [to, from] : {std::pair{at.x, &x_}, {at.dy, &dy_}}) {
    if (to == nullptr) continue;
    *to = buffer(from->dtype(), from->elems());
    kernels::CopyRows copy{.rows = 1, .columns = from->elems()};
    copy.from = from->in();
    copy.to = to->out();
    kernels::run(copy, workspace_.where);
  }
  if (begins_backward()) *at.dx = buffer(x_.dtype(), x_.elems());
}

void on_one_rank(const LayerBlock& block, const LayerInputs& inputs, int threads,
                 const std::function<void(LayerRank&, const parallel::Workspace&)>& use) {
  kernels::ThreadPool pool(threads);
  const kernels::Context where(pool);
  kernels::choose_gemms_by_rule(where);
  const auto device = core::make_cpu_device();
  parallel::Memory memory(*device);
  const parallel::Workspace workspace{memory, where};
  LayerRank rank(block, 0, inputs, workspace);
  use(rank, workspace);
}

void LayerRank::run_alone() {
  begin(Mode::serial);
  for (const Pass& pass : whole_) {
    for (const Task& task : pass.tasks()) task.run();
  }
}

void LayerRank::end(Mode mode) {
  if (mode != Mode::exchanges) stage_->end_step();
}

std::vector<double> LayerRank::kernel_us() const {
  std::vector<double> medians;
  for (const Piece& piece : pieces_) medians.push_back(piece.us.empty() ? 0 : core::median(piece.us));
  return medians;
}

std::vector<float> LayerRank::values_of(kernels::In values) const {
  return host_values(workspace_.memory.device(), values);
}

}  // namespace lockstep::step_bench
