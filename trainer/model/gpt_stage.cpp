#include "trainer/model/gpt_stage.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "core/device.h"
#include "core/error.h"
#include "kernels/cast/cast.h"
#include "parallel/parameters/device_memory.h"
#include "trainer/model/layer_run.h"
#include "trainer/model/part_run.h"
#include "workload/layout.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::trainer {
namespace {

using parallel::MemoryKind;
using parallel::Tensor;

// State of a stage for one microbatch. Boundary p is the input of part p; the last one is the stage's output.
struct Microbatch {
  Tensor tokens;
  Tensor targets;
  std::vector<Boundary> boundaries;
  std::vector<std::unique_ptr<PartRun>> parts;
  const HeadRun* head = nullptr;  // points into parts
};

// `earlier`: those of the earlier slices of a microbatch that is cut into slices.
std::unique_ptr<Microbatch> make_microbatch(const StageContext& stage, const workload::StageSlice& place,
                                            std::span<Microbatch* const> earlier) {
  auto made = std::make_unique<Microbatch>();
  const std::int32_t parts = place.num_parts();
  made->boundaries.resize(static_cast<std::size_t>(parts) + 1);
  std::size_t first = 0;  // first parameter of the next part
  Boundary* at = made->boundaries.data();
  if (place.embedding) {
    ++at;
    made->parts.push_back(make_embedding_run(stage, 0, made->tokens, *at));
    first += workload::EmbeddingIndices(stage.shape.model).count;
  }
  for (std::int64_t layer = 0; layer < place.layers; ++layer) {
    const std::int32_t part = place.part_of_layer(place.first_layer + layer);
    const std::int32_t group = stage.shape.layout.recompute_every;
    const LayerPosition in_group{layer % group == 0, (layer + 1) % group == 0 || layer + 1 == place.layers};
    std::vector<parallel::EarlierSlice> slices;
    for (const Microbatch* const slice : earlier) slices.push_back(slice->parts[made->parts.size()]->slice());
    made->parts.push_back(std::make_unique<LayerRun>(stage, part, first, in_group, *at, *(at + 1), std::move(slices)));
    ++at;
    first += workload::LayerIndices(stage.shape.model, stage.shape.layout.ep, stage.shape.layout.mlp_tiles).count;
  }
  if (place.head) {
    const std::size_t words = head_words_of(stage.shape.model, place, first);
    std::unique_ptr<HeadRun> head = make_head_run(stage, parts - 1, first, words, made->targets, *at);
    made->head = head.get();
    made->parts.push_back(std::move(head));
  }
  return made;
}

// Host-side numbers of a microbatch that queued copies read or write.
template <class T>
struct HostCopy {
  core::PinnedMemory memory = {};
  std::size_t count = 0;

  void resize(core::Device& device, std::size_t wanted) {
    if (wanted != count) memory = core::PinnedMemory(device, wanted * sizeof(T));
    count = wanted;
  }
  std::span<T> all() const { return {memory.as<T>(), count}; }
};

// Data that a microbatch and the host exchange, at the same address in every step.
struct HostSide {
  HostCopy<std::int32_t> tokens = {};
  HostCopy<std::int32_t> targets = {};
  HostCopy<float> losses = {};
  HostCopy<std::int32_t> loads = {};  // [layer][expert] tokens
};

// Sets the ids of this rank's tokens in some of the sequences, or of a slice of them.
void give_ids(core::Device& device, const GptShape& shape, std::span<const std::int32_t> ids,
              const GptShape::Sequences& which, HostCopy<std::int32_t>& to) {
  to.resize(device, ids.empty() ? 0 : static_cast<std::size_t>(which.count * shape.length()));
  auto next = to.all().begin();
  const std::vector<std::int64_t> runs = shape.first_positions();
  const std::int64_t length = static_cast<std::int64_t>(ids.size()) / shape.layout.microbatch_size;
  for (std::int64_t s = which.first; s < which.first + which.count && length > 0; ++s) {
    for (const std::int64_t first : runs) {
      next = std::copy_n(ids.begin() + s * length + first, shape.run_length(), next);
    }
  }
}

std::shared_ptr<const parallel::ContextPlan> context_plan_of(const GptShape& shape) {
  if (shape.layout.cp == 1) return nullptr;
  workload::ContextLayer layer = context_layer_of(shape.model, shape.layout, shape.context);
  layer.shape.causal = shape.causal;
  return std::make_shared<const parallel::ContextPlan>(layer);
}

Tensor ids_on_device(const parallel::Workspace& workspace, const HostCopy<std::int32_t>& ids) {
  parallel::Memory& memory = workspace.memory;
  Tensor tensor = memory.make(MemoryKind::buffers, core::DType::i32, static_cast<std::int64_t>(ids.count));
  if (tensor.given()) parallel::queue_to_device(memory.device(), workspace.where, tensor.out(), ids.all().data());
  return tensor;
}

std::vector<float> on_host(const parallel::Workspace& workspace, const Tensor& values) {
  LOCKSTEP_CHECK(values.dtype() == core::DType::f32, "f32");
  parallel::finish(workspace.where);
  std::vector<float> host(static_cast<std::size_t>(values.elems()));
  workspace.memory.device().copy_to_host(host.data(), values.data(), static_cast<std::size_t>(values.bytes()));
  return host;
}

}  // namespace

std::vector<std::int64_t> GptShape::first_positions() const {
  if (layout.cp == 1) return {first_token};
  std::vector<std::int64_t> positions;
  for (const std::int32_t chunk : chunks_of(context_of(layout), context)) positions.push_back(chunk * run_length());
  return positions;
}

std::int64_t GptShape::run_length() const {
  return layout.cp == 1 ? model.sequence : model.sequence / chunks_of(context_of(layout));
}

// Together, the ranks along axis_of_embedding() look up all of their rows.
GptShape::Sequences GptShape::looked_up() const {
  if (!layout.has_grid()) return {0, layout.microbatch_size};
  const workload::GridLinear linear = grid_linear(model, layout, workload::OperationKind::qkv);
  const std::int64_t count = layout.grid.side * sequences();
  const std::int64_t own = block_of(linear, workload::GridMatrix::x, tensor.index).first_row / length();
  return {own / count * count, count};
}

GptShape::Sequences GptShape::of_loss() const {
  if (!layout.has_grid()) return {0, layout.microbatch_size};
  const workload::GridLinear linear = grid_linear(model, layout, workload::OperationKind::logits);
  return {block_of(linear, workload::GridMatrix::y, tensor.index).first_row / length(), sequences()};
}

GptShape shape_of_slice(const GptShape& whole, std::int32_t slice) {
  if (whole.layout.slices == 1) return whole;
  GptShape shape = whole;
  const workload::StageSlice tokens = slice_of(whole.model, whole.layout, 1, 0, slice);
  shape.model = of_tokens(whole.model, tokens);
  shape.first_token = tokens.first_token;
  shape.last_slice = slice + 1 == whole.layout.slices;
  return shape;
}

TokenPosition place_of(const GptShape& shape, std::int64_t position) {
  for (std::int32_t i = 0; shape.layout.slices > 1 && i < shape.layout.slices; ++i) {
    const GptShape slice = shape_of_slice(shape, i);
    const std::int64_t row = position - slice.first_token;
    if (row < slice.length()) return {.slice = i, .row = row};
  }
  GptShape other = shape;
  for (other.context = 0; other.context < shape.layout.cp; ++other.context) {
    std::int64_t row = 0;
    for (const std::int64_t first : other.first_positions()) {
      const bool is_here = position >= first && position < first + other.run_length();
      if (is_here) return {.context = other.context, .row = row + position - first};
      row += other.run_length();
    }
  }
  LOCKSTEP_CHECK(false, "a position of a sequence");
  return {};
}

struct GptStage::State {
  Fp8History fp8;
  RouterBias router_bias;
  workload::StageSlice place;
  std::vector<StageContext> slices = {};  // one per slice of a microbatch; whole microbatches: one
  std::mutex mutex = {};                  // guards the map: threads of lanes use microbatches concurrently
  std::map<std::int32_t, std::unique_ptr<Microbatch>> microbatches = {};
  std::map<std::int32_t, HostSide> host = {};  // [microbatch], kept between steps
  std::vector<std::int32_t> ended = {};        // microbatches of the last step

  Microbatch& of(std::int32_t microbatch) {
    const std::lock_guard lock(mutex);
    std::unique_ptr<Microbatch>& found = microbatches[microbatch];
    if (found) return *found;
    std::vector<Microbatch*> earlier;
    for (std::int32_t slice = slice_of(microbatch); slice > 0; --slice) {
      earlier.push_back(microbatches.at(microbatch - slice).get());
    }
    found = make_microbatch(stage_of(microbatch), place, earlier);
    return *found;
  }
  const StageContext& stage() const { return slices.front(); }
  std::int32_t slice_of(std::int32_t microbatch) const { return microbatch % static_cast<std::int32_t>(slices.size()); }
  const StageContext& stage_of(std::int32_t microbatch) const {
    return slices[static_cast<std::size_t>(slice_of(microbatch))];
  }
  PartRun& part_of(const schedules::Task& task) {
    return *of(task.microbatch).parts[static_cast<std::size_t>(task.part)];
  }
  // Tokens per expert of a microbatch in a layer's part.
  std::span<std::int32_t> host_loads(std::int32_t microbatch, std::int32_t part) {
    const auto experts = static_cast<std::size_t>(stage().shape.model.experts);
    const auto layer = static_cast<std::size_t>(part - place.part_of_layer(place.first_layer));
    return host.at(microbatch).loads.all().subspan(layer * experts, experts);
  }
  // Memory for a message, allocated on first use.
  kernels::Out arriving(std::int32_t microbatch, Tensor& into) const {
    if (!into.given()) into = stage_of(microbatch).make_own_rows();
    return into.out();
  }
};

GptStage::GptStage(const GptShape& shape, const workload::StageSlice& place, parallel::ParameterStore& store,
                   parallel::Memory& memory, const kernels::Context& where)
    : state_(new State{.fp8 = {shape.layout, place.num_parts(), {memory, where}},
                       .router_bias = {shape.model, place.num_parts(), {memory, where}},
                       .place = place}) {
  for (std::int32_t slice = 0; slice < shape.layout.slices; ++slice) {
    state_->slices.push_back({.shape = shape_of_slice(shape, slice),
                              .store = store,
                              .workspace = {memory, where},
                              .fp8 = state_->fp8,
                              .router_bias = state_->router_bias,
                              .context = context_plan_of(shape)});
  }
}

GptStage::~GptStage() = default;

void GptStage::begin_step(Mode mode, float gradient_scale) {
  LOCKSTEP_CHECK(state_->microbatches.empty(), "the step before has ended");
  for (StageContext& slice : state_->slices) {
    slice.mode = mode;
    slice.gradient_scale = gradient_scale;
  }
}

void GptStage::give(std::int32_t microbatch, std::span<const std::int32_t> tokens,
                    std::span<const std::int32_t> targets) {
  HostSide& host = state_->host[microbatch];
  const GptShape& shape = state_->stage_of(microbatch).shape;
  core::Device& device = state_->stage().workspace.memory.device();
  if (state_->place.embedding) give_ids(device, shape, tokens, shape.looked_up(), host.tokens);
  if (state_->place.head) give_ids(device, shape, targets, shape.of_loss(), host.targets);
  host.loads.resize(device, static_cast<std::size_t>(state_->place.layers * shape.model.experts));
}

void GptStage::load(std::int32_t microbatch) {
  Microbatch& loaded = state_->of(microbatch);
  const HostSide& host = state_->host.at(microbatch);
  const parallel::Workspace& workspace = state_->stage().workspace;
  if (state_->place.embedding) loaded.tokens = ids_on_device(workspace, host.tokens);
  if (state_->place.head) loaded.targets = ids_on_device(workspace, host.targets);
}

void GptStage::run(const schedules::Task& kernel) {
  const workload::PieceName what = workload::piece_named(kernel.what);
  PartRun& part = state_->part_of(kernel);
  part.run(what, kernel.op);
  if (what.kind != workload::OperationKind::router || what.side != workload::Side::forward) return;
  const parallel::Workspace& workspace = state_->stage().workspace;
  std::int32_t* const loads = state_->host_loads(kernel.microbatch, kernel.part).data();
  parallel::queue_to_host(workspace.memory.device(), workspace.where, loads, part.loads());
}

GptStage::Exchange GptStage::exchange_counts(const schedules::Task& collective) {
  return state_->part_of(collective).exchange_counts(workload::piece_named(collective.what));
}

void GptStage::counts_exchanged(const schedules::Task& collective) {
  state_->part_of(collective).counts_exchanged(workload::piece_named(collective.what));
}

GptStage::Exchange GptStage::exchange(const schedules::Task& collective) {
  return state_->part_of(collective).exchange(workload::piece_named(collective.what));
}

void GptStage::exchanged(const schedules::Task& collective) {
  state_->part_of(collective).exchanged(workload::piece_named(collective.what));
}

std::vector<Tensor*> GptStage::kept(const schedules::Task& copy) {
  if (copy.part >= 0) return state_->part_of(copy).kept();
  std::vector<Tensor*> all;
  for (const std::unique_ptr<PartRun>& part : state_->of(copy.microbatch).parts) {
    const std::vector<Tensor*> kept = part->kept();
    all.insert(all.end(), kept.begin(), kept.end());
  }
  return all;
}

GptStage::BlockEnds GptStage::ends_of(Block block, std::int32_t microbatch) {
  return state_->of(microbatch).parts.front()->ends_of(block);
}

kernels::Out GptStage::activations_in(std::int32_t microbatch) {
  return state_->arriving(microbatch, state_->of(microbatch).boundaries.front().x);
}

kernels::In GptStage::activations_out(std::int32_t microbatch) {
  return state_->of(microbatch).boundaries.back().x.in();
}

void GptStage::activations_sent(std::int32_t microbatch) {
  state_->of(microbatch).boundaries.back().x.reset();
}

kernels::Out GptStage::gradient_in(std::int32_t microbatch) {
  return state_->arriving(microbatch, state_->of(microbatch).boundaries.back().d);
}

kernels::In GptStage::gradient_out(std::int32_t microbatch) {
  return state_->of(microbatch).boundaries.front().d.in();
}

void GptStage::gradient_sent(std::int32_t microbatch) {
  state_->of(microbatch).boundaries.front().d.reset();
}

double GptStage::loss_sum(std::int32_t microbatch) const {
  const auto found = state_->host.find(microbatch);
  LOCKSTEP_CHECK(found != state_->host.end() && found->second.losses.count > 0,
                 "a microbatch whose loss was made here");
  const std::span<const float> losses = found->second.losses.all();
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

std::vector<float> GptStage::logits(std::int32_t microbatch) const {
  const Microbatch& of = state_->of(microbatch);
  LOCKSTEP_CHECK(of.head != nullptr && of.head->logits().given(), "a microbatch whose logits were made here");
  const Tensor& logits = of.head->logits();
  const parallel::Workspace& workspace = state_->stage().workspace;
  if (logits.dtype() == core::DType::f32) return on_host(workspace, logits);
  const Tensor wide = workspace.memory.make(MemoryKind::buffers, core::DType::f32, logits.elems());
  kernels::run(
      kernels::Cast{
          .count = logits.elems(), .from = logits.dtype(), .to = core::DType::f32, .x = logits.in(), .y = wide.out()},
      workspace.where);
  return on_host(workspace, wide);
}

std::vector<std::vector<std::int64_t>> GptStage::loads() const {
  if (state_->stage().shape.model.experts == 0) return {};
  std::vector<std::vector<std::int64_t>> sums;
  for (std::int64_t layer = 0; layer < state_->place.layers; ++layer) {
    const std::int32_t part = state_->place.part_of_layer(state_->place.first_layer + layer);
    std::vector<std::int64_t>& sum = sums.emplace_back(static_cast<std::size_t>(state_->stage().shape.model.experts));
    for (const std::int32_t microbatch : state_->ended) {
      const std::span<const std::int32_t> loads = state_->host_loads(microbatch, part);
      std::transform(sum.begin(), sum.end(), loads.begin(), sum.begin(), std::plus<>());
    }
  }
  return sums;
}

std::vector<float> GptStage::fp8_history() const {
  return state_->fp8.steps(state_->stage().workspace);
}

void GptStage::set_fp8_history(std::span<const float> steps) {
  state_->fp8.set_steps(steps, state_->stage().workspace);
}

void GptStage::balance(std::int64_t layer, std::span<const std::int64_t> loads) {
  const std::int32_t part = state_->place.part_of_layer(state_->place.first_layer + layer);
  state_->router_bias.balance(part, loads, state_->stage().workspace);
}

std::vector<float> GptStage::router_bias(std::int64_t layer) const {
  return state_->router_bias.values(state_->place.part_of_layer(state_->place.first_layer + layer));
}

void GptStage::set_router_bias(std::int64_t layer, std::span<const float> values) {
  const std::int32_t part = state_->place.part_of_layer(state_->place.first_layer + layer);
  state_->router_bias.set_values(part, values, state_->stage().workspace);
}

void GptStage::end_step() {
  state_->ended.clear();
  for (const auto& [microbatch, of] : state_->microbatches) state_->ended.push_back(microbatch);
  const parallel::Workspace& workspace = state_->stage().workspace;
  core::Device& device = workspace.memory.device();
  for (const auto& [microbatch, of] : state_->microbatches) {
    if (of->head == nullptr || !of->head->losses().given()) continue;
    const Tensor& losses = of->head->losses();
    HostCopy<float>& on_host = state_->host[microbatch].losses;
    on_host.resize(device, static_cast<std::size_t>(losses.elems()));
    parallel::queue_to_host(device, workspace.where, on_host.all().data(), losses.in());
  }
  state_->fp8.end_step(state_->stage().mode == Mode::train, workspace);
  state_->microbatches.clear();
}

}  // namespace lockstep::trainer
