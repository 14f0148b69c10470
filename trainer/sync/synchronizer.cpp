#include "trainer/sync/synchronizer.h"

#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "trainer/sync/gradient_update.h"
#include "trainer/sync/outer_step.h"

namespace lockstep::trainer {
namespace {

using parallel::MemoryKind;

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
