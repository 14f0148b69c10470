#include "trainer/sync/synchronizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "collectives/backends/backend.h"
#include "core/error.h"
#include "kernels/optimizer/optimizer.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

double square_of_gradients(RankModel& model) {
  double sum = 0;
  for (RankStage& stage : model.stages()) {
    const auto counts = [&](std::size_t parameter) {
      return workload::counts_in_norm(*stage.plan, parameter, model.layout(), model.place());
    };
    double square = 0;
    stage.store->sum_of_squares(counts, {&square, core::DType::f64, 1}, model.where());
    sum += square;
  }
  return sum;
}

// The clipping factor is the one of torch.nn.utils.clip_grad_norm_ (kernels::ClipFactor).
void update_from_gradients(RankModel& model, const UpdateRules& rules, double norm) {
  float factor = 1;
  if (rules.most_norm > 0) factor = static_cast<float>(std::min(1.0, rules.most_norm / (norm + kernels::kClipEpsilon)));
  const auto schedule = kernels::optimizer_schedule(model.layout().optimizer, rules.optimizer, rules.step);
  const parallel::ParameterStore::UpdateOnDevice numbers{
      .factor = {&factor, core::DType::f32, 1},
      .schedule = {schedule.data(), core::DType::f32, static_cast<std::int64_t>(schedule.size())}};
  for (RankStage& stage : model.stages()) stage.store->update(rules.optimizer, numbers);
}

void outer_step(const OuterRules& rules, std::int32_t replicas, std::span<const float> change_sum,
                std::span<float> start, std::span<float> velocity, std::span<float> weights) {
  const std::size_t count = weights.size();
  LOCKSTEP_CHECK(change_sum.size() == count && start.size() == count && velocity.size() == count,
                 "spans of one bucket");
  const float share = 1 / static_cast<float>(replicas);
  for (std::size_t i = 0; i < count; ++i) {
    const float change = change_sum[i] * share;
    velocity[i] = rules.momentum * velocity[i] + change;
    weights[i] = start[i] -= rules.rate * (change + rules.momentum * velocity[i]);
  }
}

using collectives::Kind;
using parallel::MemoryKind;

Peers::Peers(backends::MeshRank& mesh, std::size_t channel, std::span<const std::int32_t> ranks, std::string algorithm)
    : mesh_(mesh),
      channel_(channel),
      count_(static_cast<int>(ranks.size())),
      own_(static_cast<int>(std::find(ranks.begin(), ranks.end(), mesh.messages.rank()) - ranks.begin())),
      algorithm_(std::move(algorithm)) {}

void Peers::all_reduce(const kernels::InOut& data) {
  run(Kind::all_reduce, 0, data, algorithm_);
}

// Directly to the root and from there, like a server.
void Peers::reduce(int root, const kernels::InOut& data) {
  run(Kind::reduce, root, data, "direct");
}

void Peers::broadcast(int root, const kernels::InOut& data) {
  run(Kind::broadcast, root, data, "direct");
}

void Peers::run(Kind kind, int root, const kernels::InOut& data, std::string_view algorithm) {
  const auto [place, is_new] = kept_.try_emplace({kind, root, data.elems, data.dtype});
  Kept& kept = place->second;
  if (is_new) {
    const collectives::Operation operation{.kind = kind,
                                           .count = data.elems,
                                           .dtype = data.dtype,
                                           .op = core::ReduceOp::sum,
                                           .root = root,
                                           .in_place = true};
    kept.prepared = mesh_.prepare(channel_, operation, algorithm);
    kept.sent_bytes = backends::sent_bytes(kept.prepared, operation, own_);
  }
  kept.prepared.collective->run(data.data, data.data);
  sent_bytes_ += kept.sent_bytes;
}

namespace {

constexpr int kRoot = 0;  // the replica that updates in DataParallel mode

// Replicas are on the CPU, where device memory is host memory.
std::span<float> floats_of(const kernels::InOut& view) {
  return {static_cast<float*>(view.data), static_cast<std::size_t>(view.elems)};
}

}  // namespace

Synchronizer::Synchronizer(const SyncOptions& options, RankModel& model, Peers peers)
    : options_(options), model_(model), peers_(std::move(peers)) {
  for (RankStage& stage : model_.stages()) {
    for (std::int32_t b = 0; b < stage.store->num_buckets(); ++b) {
      Bucket& bucket = buckets_.emplace_back();
      bucket.stage = &stage;
      bucket.index = b;
      if (options.way != SyncWay::diloco) continue;
      const std::int64_t elems = bucket.masters().elems;
      bucket.start = model_.memory().make(MemoryKind::optimizer, core::DType::f32, elems);
      bucket.velocity = model_.memory().make_zeroed(MemoryKind::optimizer, core::DType::f32, elems);
      std::memcpy(bucket.start.data(), bucket.masters().data, static_cast<std::size_t>(bucket.start.bytes()));
    }
  }
}

void Synchronizer::after_step(const UpdateRules& rules, std::int64_t steps) {
  if (options_.sums_gradients()) {
    sum_gradients();
    return update(rules);
  }
  if (!options_.agrees_after(rules.step, steps)) return;
  options_.way == SyncWay::diloco ? outer_steps() : average();
  for (RankStage& stage : model_.stages()) stage.store->masters_changed();
}

void Synchronizer::average() {
  const float share = 1 / static_cast<float>(peers_.count());
  for (Bucket& bucket : buckets_) {
    peers_.all_reduce(bucket.masters());
    for (float& weight : floats_of(bucket.masters())) weight *= share;
  }
}

// Ranks send changes, not weights: the difference of two nearly equal numbers is exact.
void Synchronizer::outer_steps() {
  const OuterRules rules{static_cast<float>(options_.outer_rate), static_cast<float>(options_.outer_momentum)};
  for (Bucket& bucket : buckets_) {
    const std::span<float> weights = floats_of(bucket.masters());
    const std::span<float> start = floats_of(bucket.start.inout());
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = start[i] - weights[i];
    peers_.all_reduce(bucket.masters());
    outer_step(rules, peers_.count(), weights, start, floats_of(bucket.velocity.inout()), weights);
  }
}

void Synchronizer::sum_gradients() {
  for (Bucket& bucket : buckets_) {
    const kernels::InOut gradient = bucket.stage->store->own_gradient(bucket.index);
    options_.way == SyncWay::root ? peers_.reduce(kRoot, gradient) : peers_.all_reduce(gradient);
  }
}

// Counts each parameter once over the ranks of the first replica, which has the sums in every mode.
double Synchronizer::norm_of_sums() {
  const double own = peers_.own() == kRoot ? square_of_gradients(model_) : 0;
  double sum = 0;
  for (const double square : transports::all_gather_value(model_.mesh().messages, own)) sum += square;
  return std::sqrt(sum);
}

void Synchronizer::update(const UpdateRules& rules) {
  norm_ = norm_of_sums();
  skipped_ = !std::isfinite(norm_);
  if (skipped_) return;
  if (options_.way != SyncWay::root || peers_.own() == kRoot) update_from_gradients(model_, rules, norm_);
  if (options_.way != SyncWay::root) return;
  for (Bucket& bucket : buckets_) peers_.broadcast(kRoot, bucket.masters());
  for (RankStage& stage : model_.stages()) stage.store->masters_changed();
}

}  // namespace lockstep::trainer
