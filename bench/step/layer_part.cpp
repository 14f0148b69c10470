#include "bench/step/layer_part.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bench/step/values.h"
#include "core/error.h"
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

trainer::GptShape shape_of(const LayerBlock& block, std::int32_t rank) {
  const workload::Coordinates at = coordinates_of(block.layout, rank);
  return {.model = block.model,
          .layout = block.layout,
          .tensor = {block.layout.tp, at.tp},
          .context = at.cp,
          .expert_rank = at.ep};
}

// The layer's parameters; those of its other block have one element. All are random, so that none can be forgotten.
std::vector<workload::Parameter> parameters_of(const LayerBlock& block, const workload::StageSlice& place,
                                               std::int32_t expert_rank) {
  const workload::LayerIndices indices(block.model, block.layout.ep, block.layout.mlp_tiles);
  std::vector<workload::Parameter> parameters = workload::parameters_of(block.model, block.layout, place, expert_rank);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    workload::Parameter& parameter = parameters[p];
    const bool is_of_attention = p < indices.norm2.weight;
    if (is_of_attention != (block.block == GptStage::Block::attention)) parameter = {parameter.name, {1}};
    const bool is_matrix = parameter.shape.size() > 1;
    parameter.deviation = is_matrix ? 1 / std::sqrt(static_cast<float>(parameter.shape.back())) : 0.1F;
    if (block.model.experts > 0 && p == indices.router.weight) parameter.drawn_as = "router";
  }
  return parameters;
}

// Unequal blocks have a matrix of their elements.
collectives::Operation operation_of(const schedules::Task& task, const GptStage::Exchange& exchange,
                                    std::int64_t ranks) {
  LOCKSTEP_CHECK(task.comm == schedules::Comm::all_to_all, "a collective of expert-parallel ranks");
  const core::DType dtype = exchange.output.dtype;
  if (exchange.matrix != nullptr) {
    return {.kind = collectives::Kind::all_to_all_v, .dtype = dtype, .matrix = exchange.matrix};
  }
  return {.kind = collectives::Kind::all_to_all, .count = exchange.output.elems / ranks, .dtype = dtype};
}

}  // namespace

LayerRank::LayerRank(const LayerBlock& block, std::int32_t rank, const std::string& input, std::uint64_t seed,
                     Exchanger* exchanger, const parallel::Workspace& workspace)
    : block_(block),
      seed_(seed),
      exchanger_(exchanger),
      workspace_(workspace),
      shape_(shape_of(block, rank)),
      x_(drawn("x" + input)),
      dy_(drawn("dy" + input)) {
  std::vector<workload::Parameter> parameters = parameters_of(block, place_, shape_.expert_rank);
  std::vector<std::vector<std::size_t>> buckets(1, std::vector<std::size_t>(parameters.size()));
  std::iota(buckets.front().begin(), buckets.front().end(), 0);
  store_ = std::make_unique<parallel::ParameterStore>(
      workspace.memory, workspace.where, std::move(parameters), shape_.tensor, std::move(buckets),
      parallel::StoreOptions{.compute = block.layout.compute, .optimizer = kernels::OptimizerKind::sgd});
  store_->initialize(seed);
  stage_ = std::make_unique<GptStage>(shape_, place_, *store_, workspace.memory, workspace.where);
  stage_->give(0, {}, {});
  make_passes(rank);
}

Tensor LayerRank::drawn(const std::string& name) const {
  const std::int64_t count = shape_.own_rows() * shape_.model.hidden;
  std::vector<float> values(static_cast<std::size_t>(count));
  parallel::fill_initial_values({.name = name, .shape = {count}, .deviation = 1}, seed_, 0, values);
  Tensor tensor = workspace_.memory.make(MemoryKind::buffers, shape_.layout.compute, count);
  parallel::write_rounded(workspace_.memory.device(), tensor.out(), values);
  return tensor;
}

void LayerRank::make_passes(std::int32_t rank) {
  const schedules::Step step = trainer::make_part_step(shape_.model, shape_.layout, place_, block_.kinds);
  const schedules::RankStep& tasks = step.of_rank[static_cast<std::size_t>(rank)];
  const auto side_of = [](const schedules::Task& task) { return workload::piece_named(task.what).side; };
  const auto is_exchange = [](const schedules::Task& task) { return task.comm != schedules::Comm::none; };
  std::vector<int> number_of;  // Index of each task in its pass
  for (const schedules::Task& task : tasks.tasks) {
    const bool is_forward = side_of(task) == Side::forward;
    int after = kNothing;
    for (const std::uint32_t earlier : tasks.after_of(task)) {
      const schedules::Task& other = tasks.tasks[earlier];
      const bool is_here = (side_of(other) == Side::forward) == is_forward;
      if (is_here && is_exchange(other) != is_exchange(task)) after = std::max(after, number_of[earlier]);
    }
    const std::size_t share = block_.share_of(workload::piece_named(task.what).kind);
    Pass& pass = passes_[is_forward ? 0 : 1];
    number_of.push_back(is_exchange(task) ? pass.add(
                                                true, share, [this, task] { exchange(task); }, after)
                                          : pass.add(
                                                false, share, [this, task] { stage_->run(task); }, after));
  }
}

// A router's result is the same in every pass, so that each size is prepared once.
void LayerRank::exchange(const schedules::Task& task) {
  if (const GptStage::Exchange counts = stage_->exchange_counts(task); counts.input.given()) {
    const collectives::Operation gather{
        .kind = collectives::Kind::all_gather, .count = counts.input.elems, .dtype = counts.input.dtype};
    exchanger_->prepared(gather, "auto").run(counts.input.data, counts.output.data);
    stage_->counts_exchanged(task);
  }
  const GptStage::Exchange rows = stage_->exchange(task);
  exchanger_->run(operation_of(task, rows, shape_.layout.ep), rows.input.data, rows.output.data);
  stage_->exchanged(task);
}

void LayerRank::begin() {
  store_->zero_gradients();
  stage_->begin_step(trainer::Mode::train, 1);
  const GptStage::BlockEnds at = ends();
  fill(*at.x, x_);
  fill(*at.dy, dy_);
}

void LayerRank::end() {
  stage_->end_step();
}

std::vector<float> LayerRank::values_of(const Tensor& tensor) const {
  return host_values(workspace_.memory.device(), tensor.in());
}

void LayerRank::fill(Tensor& to, const Tensor& from) const {
  to = workspace_.memory.make(MemoryKind::activations, from.dtype(), from.elems());
  kernels::CopyRows copy{.rows = 1, .columns = from.elems()};
  copy.from = from.in();
  copy.to = to.out();
  kernels::run(copy, workspace_.where);
}

}  // namespace lockstep::step_bench
