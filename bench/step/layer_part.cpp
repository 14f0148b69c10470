#include "bench/step/layer_part.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bench/step/values.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/wait.h"
#include "kernels/copy/copy.h"
#include "parallel/parameters/device_memory.h"
#include "trainer/step/train_step.h"
#include "workload/parameters.h"

namespace lockstep::step_bench {
namespace {

using parallel::MemoryKind;
using parallel::Tensor;
using trainer::GptStage;
using workload::Side;

constexpr workload::StageSlice kOneLayer{.layers = 1};

trainer::GptShape shape_of(const LayerBlock& block, std::int32_t rank) {
  const workload::Coordinates at = coordinates_of(block.layout, rank);
  return {.model = block.model,
          .layout = block.layout,
          .tensor = {block.layout.tp, at.tp},
          .context = at.cp,
          .expert_rank = at.ep,
          .causal = block.causal};
}

// The layer's parameters, all random, so that none can be forgotten; those of other blocks have one element.
std::vector<workload::Parameter> parameters_of(const LayerBlock& block, std::int32_t expert_rank) {
  const workload::LayerIndices indices(block.model, block.layout.ep, block.layout.mlp_tiles);
  std::vector<workload::Parameter> all = workload::parameters_of(block.model, block.layout, kOneLayer, expert_rank);
  for (std::size_t p = 0; p < all.size(); ++p) {
    workload::Parameter& parameter = all[p];
    const bool is_used = block.block == GptStage::Block::mlp && p >= indices.norm2.weight;
    if (!is_used) parameter = {.name = parameter.name, .shape = {1}};
    const bool is_matrix = parameter.shape.size() > 1;
    parameter.deviation = is_matrix ? 1 / std::sqrt(static_cast<float>(parameter.shape.back())) : 0.1F;
    if (block.model.experts > 0 && p == indices.router.weight) parameter.drawn_as = "router";
  }
  return all;
}

bool is_exchange(const schedules::Task& task) {
  return task.comm != schedules::Comm::none;
}

std::size_t direction_of(const schedules::Task& task) {
  return workload::piece_named(task.what).side == Side::forward ? 0 : 1;
}

collectives::Operation operation_of(schedules::Comm comm, const GptStage::Exchange& exchange, std::int64_t ranks) {
  using collectives::Kind;
  using schedules::Comm;
  const core::DType dtype = exchange.output.dtype;
  if (comm == Comm::shift) return {.kind = Kind::all_to_all_v, .dtype = core::DType::u8, .matrix = exchange.matrix};
  if (comm == Comm::all_gather) return {.kind = Kind::all_gather, .count = exchange.input.elems, .dtype = dtype};
  if (comm == Comm::reduce_scatter) {
    return {.kind = Kind::reduce_scatter, .count = exchange.output.elems, .dtype = dtype};
  }
  LOCKSTEP_CHECK(comm == Comm::all_to_all, "a collective of expert-parallel or context-parallel ranks");
  if (exchange.matrix != nullptr) return {.kind = Kind::all_to_all_v, .dtype = dtype, .matrix = exchange.matrix};
  return {.kind = Kind::all_to_all, .count = exchange.output.elems / ranks, .dtype = dtype};
}

std::int64_t bytes_of(const auto& view) {
  return static_cast<std::int64_t>(kernels::size_bytes(view.dtype, view.elems));
}

}  // namespace

schedules::Step step_of(const LayerBlock& block) {
  return trainer::make_part_step(block.model, block.layout, kOneLayer, block.kinds);
}

std::vector<float> random_rows(const std::string& name, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  parallel::fill_initial_values({.name = name, .shape = {count}, .deviation = 1}, kLayerSeed, 0, values);
  return values;
}

LayerRank::LayerRank(const LayerBlock& block, std::int32_t rank, const LayerInputs& inputs, Exchanger* exchanger,
                     const parallel::Workspace& workspace)
    : block_(block),
      exchanger_(exchanger),
      workspace_(workspace),
      shape_(shape_of(block, rank)),
      step_(step_of(block)),
      tasks_(step_.of_rank[static_cast<std::size_t>(rank)]),
      x_(tensor_of(inputs.x)),
      dy_(tensor_of(inputs.dy)),
      moves_(tasks_.tasks.size()),
      times_(tasks_.tasks.size()) {
  std::vector<workload::Parameter> parameters = parameters_of(block, shape_.expert_rank);
  std::vector<std::vector<std::size_t>> buckets(1, std::vector<std::size_t>(parameters.size()));
  std::iota(buckets.front().begin(), buckets.front().end(), 0);
  store_ = std::make_unique<parallel::ParameterStore>(
      workspace.memory, workspace.where, std::move(parameters), shape_.tensor, std::move(buckets),
      parallel::StoreOptions{.compute = block.layout.compute, .optimizer = kernels::OptimizerKind::sgd});
  store_->initialize(kLayerSeed);
  stage_ = std::make_unique<GptStage>(shape_, kOneLayer, *store_, workspace.memory, workspace.where);
  stage_->give(0, {}, {});
  make_passes();
}

Tensor LayerRank::buffer(core::DType dtype, std::int64_t elems) const {
  return workspace_.memory.make(MemoryKind::buffers, dtype, elems);
}

Tensor LayerRank::tensor_of(const std::vector<float>& values) const {
  Tensor tensor = buffer(shape_.layout.compute, static_cast<std::int64_t>(values.size()));
  parallel::write_rounded(workspace_.memory.device(), tensor.out(), values);
  return tensor;
}

void LayerRank::make_passes() {
  const bool begins = block_.block == GptStage::Block::core;  // the backward has a task before those of the step
  if (begins) {
    for (Passes* passes : {&whole_, &kernels_}) {
      passes->back().add(
          false, block_.share_of(workload::OperationKind::none, false), [this] { ends().begin_backward(); }, kNothing);
    }
  }
  std::vector<int> number_in_pass;
  for (std::size_t i = 0; i < tasks_.tasks.size(); ++i) {
    const schedules::Task& task = tasks_.tasks[i];
    const std::size_t direction = direction_of(task);
    int after = begins && direction == 1 && is_exchange(task) ? 0 : kNothing;
    for (const std::uint32_t earlier : tasks_.after_of(task)) {
      const schedules::Task& other = tasks_.tasks[earlier];
      const bool is_of_other_thread = is_exchange(other) != is_exchange(task);
      if (is_of_other_thread && direction_of(other) == direction) after = std::max(after, number_in_pass[earlier]);
    }
    const auto share = [&](bool moves) { return block_.share_of(workload::piece_named(task.what).kind, moves); };
    const bool moves = is_exchange(task);
    const auto run = [this, &task, i](bool sends) {
      return [this, &task, i, sends] { is_exchange(task) ? exchange(task, i, sends) : stage_->run(task); };
    };
    number_in_pass.push_back(whole_[direction].add(moves, share(moves), run(true), after));
    const std::function<void()> alone = run(false);
    kernels_[direction].add(
        false, share(false),
        [this, alone, moves, i] {
          const auto start = core::Clock::now();
          alone();
          if (!moves) times_[i].push_back(core::us_between(start, core::Clock::now()));
        },
        kNothing);
  }
}

// A router's result is the same in every pass, so that each size is prepared once.
void LayerRank::exchange(const schedules::Task& task, std::size_t number, bool moves) {
  if (const GptStage::Exchange counts = stage_->exchange_counts(task); counts.input.given()) {
    const collectives::Operation gather{
        .kind = collectives::Kind::all_gather, .count = counts.input.elems, .dtype = counts.input.dtype};
    exchanger_->prepared(gather, "auto").run(counts.input.data, counts.output.data);
    stage_->counts_exchanged(task);
  }
  const GptStage::Exchange data = stage_->exchange(task);
  const std::size_t ranks = step_.groups[static_cast<std::size_t>(task.peer)].ranks.size();
  const collectives::Operation operation = operation_of(task.comm, data, static_cast<std::int64_t>(ranks));
  if (moves) exchanger_->run(operation, data.input.data, data.output.data);
  moves_[number] = {operation, bytes_of(data.input), bytes_of(data.output)};
  stage_->exchanged(task);
}

void LayerRank::make_exchange_passes() {
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    const schedules::Task& task = tasks_.tasks[i];
    if (!is_exchange(task)) continue;
    for (const std::int64_t bytes : {moves_[i].input_bytes, moves_[i].output_bytes}) {
      buffers_.push_back(
          workspace_.memory.make_zeroed(MemoryKind::buffers, core::DType::u8, std::max<std::int64_t>(bytes, 1)));
    }
    const Tensor& output = buffers_.back();
    const Tensor& input = *std::prev(buffers_.end(), 2);
    exchanges_[direction_of(task)].add(true, block_.share_of(workload::piece_named(task.what).kind, true),
                                       exchanger_->make(moves_[i].operation, input.data(), output.data()), kNothing);
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
  const GptStage::BlockEnds at = ends();
  for (const auto& [to, from] : {std::pair{at.x, &x_}, {at.dy, &dy_}}) {
    *to = buffer(from->dtype(), from->elems());
    kernels::CopyRows copy{.rows = 1, .columns = from->elems()};
    copy.from = from->in();
    copy.to = to->out();
    kernels::run(copy, workspace_.where);
  }
  if (block_.block == GptStage::Block::core) *at.dx = buffer(x_.dtype(), x_.elems());
}

void LayerRank::end(Mode mode) {
  if (mode != Mode::exchanges) stage_->end_step();
}

std::vector<double> LayerRank::kernel_us() const {
  std::vector<double> medians;
  for (const std::vector<double>& us : times_) medians.push_back(us.empty() ? 0 : core::median(us));
  return medians;
}

std::vector<float> LayerRank::values_of(kernels::In values) const {
  return host_values(workspace_.memory.device(), values);
}

}  // namespace lockstep::step_bench
