#include "workload/memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "workload/memory_kinds.h"
#include "workload/operations.h"
#include "workload/parameters.h"
#include "workload/touches.h"

namespace lockstep::workload {
namespace {

using schedules::GroupKind;
using schedules::Op;
using schedules::Task;

std::int64_t bytes_of(core::DType dtype, std::int64_t elems) {
  return static_cast<std::int64_t>(core::size_of(dtype)) * elems;
}

// ---- parameters

// The state of a stage's bucket, as in parallel::ParameterStore.
struct BucketState {
  FlatBucket flat;
  FlatRange own;
  bool gathered = false;                         // stage 3: the whole weights exist
  bool added_to = false;                         // stages 2, 3: a whole gradient of the current microbatch
  std::map<std::int32_t, std::int64_t> commits;  // by part that has members
  std::int64_t times_complete = 0;
  bool reduced = false;       // in this step: the next result lands in a separate tensor
  bool has_gradient = false;  // with Update::per_bucket: from the first addition or reduction to its update
};

struct StageState {
  const StagePlan* plan = nullptr;
  std::vector<BucketState> buckets;
  std::vector<std::size_t> bucket_of;  // [parameter]
  std::vector<std::size_t> member_of;  // [parameter] index in its bucket
  std::vector<bool> copied;            // [parameter] f32, while a 16-bit gradient is added to
  // For schedules with several versions of the weights, as in parallel::WeightVersions.
  std::int32_t newest = 0;
  std::map<std::int32_t, std::int32_t> version_of = {};  // [microbatch]
};

constexpr auto is_held = [](const Task& task) { return task.op == Op::hold; };

class RankMemory {
 public:
  RankMemory(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans, const schedules::Step& step,
             std::int32_t rank)
      : model_(model),
        slices_(models_of_slices(model, layout)),
        layout_(with_slice_tokens(model, layout)),
        step_(step),
        tasks_(step.of_rank[static_cast<std::size_t>(rank)]),
        at_(coordinates_of(layout, rank)) {
    if (layout.cp > 1) context_.emplace(context_layer_of(model, layout, static_cast<std::int32_t>(at_.cp)));
    for (std::int32_t s = 0; s < step.num_stages(); ++s) {
      if (step.rank_of_stage[static_cast<std::size_t>(s)] != at_.pp) continue;
      stages_[s] = make_stage(plans[static_cast<std::size_t>(s)]);
    }
  }

  // `others`: bytes of the room for what another rank evicts.
  HeldBytes held(std::int64_t others) {
    std::vector<std::int64_t> bytes(tasks_.tasks.size());
    return held_after(always(others), all_events(bytes));
  }
  std::vector<std::int64_t> copied() {
    std::vector<std::int64_t> bytes(tasks_.tasks.size());
    all_events(bytes);
    return bytes;
  }

 private:
  std::vector<MemoryEvent> all_events(std::vector<std::int64_t>& copied_bytes) {
    for (const auto& [stage, microbatches] : schedules::microbatches_of(tasks_)) {
      for (const std::int32_t microbatch : microbatches) load(stage, microbatch);
    }
    for (std::uint32_t i = 0; i < tasks_.tasks.size(); ++i) run(tasks_.tasks[i], i);
    for (const Touch& touch : kept_) events_.push_back({.touch = touch});
    return with_copies(events_, tasks_.tasks, copied_bytes);
  }

  // ---- permanent tensors

  StageState make_stage(const StagePlan& plan) const {
    StageState stage{.plan = &plan,
                     .buckets = {},
                     .bucket_of = std::vector<std::size_t>(plan.parameters.size()),
                     .member_of = std::vector<std::size_t>(plan.parameters.size()),
                     .copied = std::vector<bool>(plan.parameters.size())};
    for (const std::vector<std::size_t>& members : plan.buckets) {
      std::vector<std::int64_t> elems;
      BucketState bucket;
      for (std::size_t i = 0; i < members.size(); ++i) {
        const Parameter& parameter = plan.parameters[members[i]];
        elems.push_back(elems_of_rank(parameter, layout_));
        bucket.commits[parameter.part] = 0;
        stage.bucket_of[members[i]] = stage.buckets.size();
        stage.member_of[members[i]] = i;
      }
      const auto [shards, shard] = shard_index(layout_, at_, plan.parameters[members.front()].expert);
      bucket.flat = lay_out(elems, shards);
      bucket.own = zero_ == 0 ? FlatRange{0, bucket.flat.elems} : bucket.flat.shard(shards, shard);
      stage.buckets.push_back(std::move(bucket));
    }
    return stage;
  }

  BytesByKind always(std::int64_t others) const {
    HeldBytes held;
    held.change(MemoryKind::activations, others);
    for (const auto& [number, stage] : stages_) {
      const std::vector<bool> secondary = has_secondary(*stage.plan, layout_);
      for (std::size_t b = 0; b < stage.buckets.size(); ++b) {
        const BucketState& bucket = stage.buckets[b];
        if (secondary[b]) {
          held.change(MemoryKind::weights, bytes_of(layout_.compute, bucket.flat.elems / layout_.secondary_ranks));
        }
        const std::int64_t whole = bucket.flat.elems;
        const std::int64_t own = bucket.own.count();
        if (places_.parameters == Offload::none) {
          held.change(MemoryKind::weights, bytes_of(layout_.compute, zero_ == 3 ? own : whole));
        }
        if (versions_ == schedules::Versions::double_buffered) {
          held.change(MemoryKind::weights, bytes_of(layout_.compute, whole));
        }
        if (places_.gradients == Offload::none) {
          if (!frees_gradients_) held.change(MemoryKind::gradients, gradient_bytes(bucket));
        }
        if (places_.optimizer == Offload::none) {
          held.change(MemoryKind::optimizer, optimizer_elem_bytes(layout_.optimizer, layout_.compute) * own);
        }
      }
      if (updates_bring_pieces()) held.change(MemoryKind::buffers, staging_bytes(stage));
      if (places_.gradients != Offload::none) {
        held.change(MemoryKind::buffers, bytes_of(core::DType::f64, counted_runs(stage)));
      }
    }
    for (const auto& [number, stage] : stages_) {  // as in trainer/model/part_run.h
      const std::int64_t parts = stage.plan->place.num_parts();
      if (layout_.fp8_delayed) {
        const std::int64_t numbers = kFp8LinearLayers * 3 * parts;
        const std::int64_t steps = layout_.fp8_history;
        held.change(MemoryKind::buffers, bytes_of(core::DType::f32, numbers * (2 * steps + 2)) +
                                             bytes_of(core::DType::f8e4m3, numbers * steps));
      }
      if (model_.bias_rate > 0) held.change(MemoryKind::buffers, bytes_of(core::DType::f32, model_.experts * parts));
    }
    const auto stages = static_cast<std::int64_t>(stages_.size());
    const std::int64_t updates = updates_every_microbatch(layout_) ? layout_.microbatches : 1;
    held.change(MemoryKind::buffers,
                bytes_of(core::DType::f32, step_numbers(updates)) + bytes_of(core::DType::f64, 1 + stages));
    return held.now();
  }

  std::int64_t staging_bytes(const StageState& stage) const {
    std::int64_t largest = 0;
    for (const BucketState& bucket : stage.buckets) largest = std::max(largest, bucket.own.count());
    const OffloadStaging staging =
        offload_staging(places_, layout_.optimizer, layout_.compute, layout_.gradient, largest);
    return staging.rooms() * staging.room_bytes();
  }
  bool updates_bring_pieces() const {
    if (layout_.delayed_update) return false;  // on the host
    return places_.optimizer != Offload::none || places_.gradients != Offload::none ||
           places_.parameters != Offload::none;
  }
  // Bytes of a shard that is copied at once.
  static std::int64_t staged(core::DType dtype, const BucketState& bucket) {
    return OffloadStaging::staged_bytes(bytes_of(dtype, bucket.own.count()));
  }

  // ---- events

  void change(MemoryKind kind, std::int64_t bytes) { events_.push_back({.kind = kind, .bytes = bytes}); }
  void touch(const TensorKey& key, bool makes) {
    events_.push_back({.touch = touch_of(model_of(key.microbatch), layout_, key, makes)});
  }
  // The model whose sequences are as long as the microbatch's slice.
  const Model& model_of(std::int32_t microbatch) const {
    return slices_[static_cast<std::size_t>(microbatch) % slices_.size()];
  }
  void end_phase() { events_.push_back({.ends_phase = true}); }
  const ContextMemory* context() const { return context_ ? &*context_ : nullptr; }
  StageState& stage_of(const Task& task) { return stages_.at(task.stage); }

  // Tokens and targets exist for the whole step, losses from their computation on.
  void load(std::int32_t stage, std::int32_t microbatch) {
    const StageSlice& place = stages_.at(stage).plan->place;
    const auto keep = [&](std::int32_t part, TensorName name) {
      kept_.push_back(touch_of(model_of(microbatch), layout_, {stage, microbatch, part, name}, false));
    };
    if (place.embedding) {
      touch({stage, microbatch, 0, TensorName::tokens}, true);
      keep(0, TensorName::tokens);
    }
    if (!place.head) return;
    const std::int32_t head = place.num_parts() - 1;
    touch({stage, microbatch, head, TensorName::targets}, true);
    keep(head, TensorName::targets);
    keep(head, TensorName::losses);
  }

  // ---- tasks

  void run(const Task& task, std::uint32_t index) {
    if (copies_activations(task) || schedules::is_of_eviction(task.op)) return events_.push_back({.copies = index});
    if (task.op >= Op::hold && task.op <= Op::yield) return;  // messages in the room for another rank
    switch (task.op) {
      case Op::recv_activations:
        return boundary(task, 0, TensorName::x, true);
      case Op::send_activations:
        return boundary(task, stage_of(task).plan->place.num_parts(), TensorName::x, false);
      case Op::recv_gradient:
        return boundary(task, stage_of(task).plan->place.num_parts(), TensorName::d, true);
      case Op::send_gradient:
        return boundary(task, 0, TensorName::d, false);
      case Op::unshard:
        return gather(bucket_of_unit(task));
      case Op::reshard:
        return set_gathered(bucket_of_unit(task), false);
      case Op::load:
        return change(MemoryKind::weights, staged(layout_.compute, bucket_of_unit(task)));
      case Op::offload:
        return offload_gradient(bucket_of_task(task));
      case Op::reduce_grad:
        return reduce(task);
      case Op::optimizer:
        if (task.microbatch >= 0) return update_stage(task);
        if (task.lane == schedules::Lane::host) return;  // it uses no device memory
        if (task.part >= 0) return update_bucket(task);
        return task.comm == schedules::Comm::none ? update() : norm();
      default:
        piece(task);
        hand_over(task, hand_overs_[index]);
    }
  }

  void boundary(const Task& task, std::int32_t part, TensorName name, bool makes) {
    touch({task.stage, task.microbatch, part, name}, makes);
    end_phase();
  }

  void piece(const Task& task) {
    StageState& stage = stage_of(task);
    if (versions_ == schedules::Versions::in_flight) stage.version_of.try_emplace(task.microbatch, stage.newest);
    for (const Phase& phase : phases_of(model_of(task.microbatch), layout_, stage.plan->place, context(), task)) {
      for (const std::size_t parameter : phase.gradients) add_to(stage, parameter);
      for (const Touch& one : phase.touches) events_.push_back({.touch = one});
      end_phase();
      if (phase.commits) commit(stage, task.part);
    }
  }

  // The output that another stage of this rank uses is copied after the last kernel.
  void hand_over(const Task& task, schedules::HandOver what) {
    if (what == schedules::HandOver::none) return;
    const bool forward = what == schedules::HandOver::activations;
    const std::int32_t next = task.stage + (forward ? 1 : -1);
    const auto parts_of = [&](std::int32_t stage) { return stages_.at(stage).plan->place.num_parts(); };
    const TensorName name = forward ? TensorName::x : TensorName::d;
    touch({next, task.microbatch, forward ? 0 : parts_of(next), name}, true);
    touch({task.stage, task.microbatch, forward ? parts_of(task.stage) : 0, name}, false);
    end_phase();
  }

  // ---- gradients

  std::int64_t elems_of(const StageState& stage, std::size_t parameter) const {
    return elems_of_rank(stage.plan->parameters[parameter], layout_);
  }
  // Bytes of a rank's gradients: whole, or its shard.
  std::int64_t gradient_bytes(const BucketState& bucket) const {
    return bytes_of(layout_.gradient, zero_ >= 2 ? bucket.own.count() : bucket.flat.elems);
  }
  void make_gradient(BucketState& bucket) {
    if (!frees_gradients_ || std::exchange(bucket.has_gradient, true)) return;
    change(MemoryKind::gradients, gradient_bytes(bucket));
  }
  void open(BucketState& bucket) {
    if (zero_ < 2) make_gradient(bucket);
    if (zero_ < 2 || bucket.added_to) return;
    bucket.added_to = true;
    change(MemoryKind::gradients, bytes_of(layout_.gradient, bucket.flat.elems));
  }
  BucketState& bucket_with(StageState& stage, std::size_t parameter) {
    return stage.buckets[stage.bucket_of[parameter]];
  }

  void add_to(StageState& stage, std::size_t parameter) {
    if (layout_.gradient == core::DType::f32) return open(bucket_with(stage, parameter));
    if (stage.copied[parameter]) return;
    stage.copied[parameter] = true;
    change(MemoryKind::buffers, bytes_of(core::DType::f32, elems_of(stage, parameter)));
    if (zero_ < 2) open(bucket_with(stage, parameter));
  }

  void commit(StageState& stage, std::int32_t part) {
    for (std::size_t p = 0; p < stage.plan->parameters.size(); ++p) {
      if (stage.plan->parameters[p].part != part || !stage.copied[p]) continue;
      open(bucket_with(stage, p));
      stage.copied[p] = false;
      change(MemoryKind::buffers, -bytes_of(core::DType::f32, elems_of(stage, p)));
    }
    if (zero_ < 2) return;
    for (BucketState& bucket : stage.buckets) {
      const auto of_part = bucket.commits.find(part);
      if (of_part != bucket.commits.end()) ++of_part->second;
      const std::int64_t wanted = (bucket.times_complete + 1) * layout_.slices;
      const bool complete = std::all_of(bucket.commits.begin(), bucket.commits.end(),
                                        [&](const auto& counted) { return counted.second >= wanted; });
      if (!complete) continue;
      open(bucket);
      ++bucket.times_complete;
      bucket.added_to = false;  // it waits for its reduction
    }
  }

  void reduce(const Task& task) {
    const GroupKind kind = step_.groups[static_cast<std::size_t>(task.peer)].kind;
    const bool is_of_bucket = kind == GroupKind::data || kind == GroupKind::expert_data || kind == GroupKind::replicas;
    if (is_of_bucket) return reduce_bucket(task, kind);
    const std::int64_t packed = packed_elems(kind);
    change(MemoryKind::buffers, bytes_of(layout_.gradient, packed));
    change(MemoryKind::buffers, -bytes_of(layout_.gradient, packed));
  }
  void reduce_bucket(const Task& task, GroupKind kind) {
    if (zero_ < 2) return;
    BucketState& bucket = bucket_of_task(task);
    if (places_.gradients != Offload::none) {  // it lands in the buffer from which it is copied
      if (kind == GroupKind::replicas) return;
      change(MemoryKind::gradients, staged(layout_.gradient, bucket));
      return change(MemoryKind::gradients, -bytes_of(layout_.gradient, bucket.flat.elems));
    }
    const std::int64_t landing = bytes_of(layout_.gradient, bucket.own.count());
    if (kind != GroupKind::replicas) {
      make_gradient(bucket);
      if (bucket.reduced) change(MemoryKind::buffers, landing);
      change(MemoryKind::gradients, -bytes_of(layout_.gradient, bucket.flat.elems));
    }
    if (kind != GroupKind::replicas && replicas_of(layout_) > 1) return;  // a task of the replicas ends it
    if (bucket.reduced) change(MemoryKind::buffers, -landing);
    bucket.reduced = true;
  }

  BucketState& bucket_of_task(const Task& task) { return stage_of(task).buckets[static_cast<std::size_t>(task.part)]; }
  // The sum of earlier microbatches is copied to the device, and both are freed.
  void offload_gradient(BucketState& bucket) {
    const std::int64_t bytes = staged(layout_.gradient, bucket);
    if (bucket.reduced) change(MemoryKind::gradients, bytes);
    change(MemoryKind::gradients, bucket.reduced ? -2 * bytes : -bytes);
    bucket.reduced = true;
  }

  // The sizes that StepEnd packs.
  std::int64_t packed_elems(GroupKind kind) const {
    std::int64_t elems = 0;
    for (const auto& [number, stage] : stages_) {
      for (std::size_t p = 0; p < stage.plan->parameters.size(); ++p) {
        if (!is_summed_over(kind, *stage.plan, p, layout_)) continue;
        const BucketState& bucket = stage.buckets[stage.bucket_of[p]];
        const FlatRange own = common_of(bucket.flat.places[stage.member_of[p]], bucket.own);
        if (own.empty()) continue;
        if (kind == GroupKind::embedding) return own.count();
        elems += own.count();
      }
    }
    return elems;
  }

  // ---- weights, and the end of a step

  BucketState& bucket_of_unit(const Task& task) {
    StageState& stage = stage_of(task);
    return stage.buckets[stage.buckets.size() - 1 - static_cast<std::size_t>(task.part)];
  }
  void set_gathered(BucketState& bucket, bool gathered) {
    if (zero_ < 3 || bucket.gathered == gathered) return;
    bucket.gathered = gathered;
    const std::int64_t bytes = bytes_of(layout_.compute, bucket.flat.elems);
    change(MemoryKind::weights, gathered ? bytes : -bytes);
  }
  void gather(BucketState& bucket) {
    set_gathered(bucket, true);
    if (places_.parameters != Offload::none) change(MemoryKind::weights, -staged(layout_.compute, bucket));
  }
  void update() {
    for (auto& [number, stage] : stages_) {
      for (BucketState& bucket : stage.buckets) set_gathered(bucket, false);
    }
  }

  void update_bucket(const Task& task) {
    BucketState& bucket = stage_of(task).buckets[static_cast<std::size_t>(task.part)];
    if (std::exchange(bucket.has_gradient, false)) change(MemoryKind::gradients, -gradient_bytes(bucket));
    set_gathered(bucket, false);
  }

  // Frees a version that only this microbatch has read, and copies one that others will still read.
  void update_stage(const Task& task) {
    StageState& stage = stage_of(task);
    std::int64_t bytes = 0;
    for (const BucketState& bucket : stage.buckets) bytes += bytes_of(layout_.compute, bucket.flat.elems);
    const auto is_read = [&](std::int32_t version) {
      return std::any_of(stage.version_of.begin(), stage.version_of.end(),
                         [&](const auto& one) { return one.second == version; });
    };
    const std::int32_t read = stage.version_of.at(task.microbatch);
    stage.version_of.erase(task.microbatch);
    if (read != stage.newest && !is_read(read)) change(MemoryKind::weights, -bytes);
    if (is_read(stage.newest)) change(MemoryKind::weights, bytes);
    ++stage.newest;
  }

  // One f64 for each run of gradients that this rank counts.
  void norm() {
    if (places_.gradients != Offload::none) return;  // the sums exist already
    for (const auto& [number, stage] : stages_) {
      const std::int64_t bytes = bytes_of(core::DType::f64, counted_runs(stage));
      change(MemoryKind::buffers, bytes);
      change(MemoryKind::buffers, -bytes);
    }
  }
  std::int64_t counted_runs(const StageState& stage) const {
    std::int64_t runs = 0;
    for (std::size_t b = 0; b < stage.buckets.size(); ++b) {
      const auto counted = [&](std::size_t member) {
        return counts_in_norm(*stage.plan, stage.plan->buckets[b][member], layout_, at_);
      };
      runs += static_cast<std::int64_t>(stage.buckets[b].flat.ranges_in(stage.buckets[b].own, counted).size());
    }
    return runs;
  }

  const Model& model_;
  const std::vector<Model> slices_;  // by slice of a microbatch; one if they are whole
  const Layout layout_;
  const schedules::Step& step_;
  const schedules::RankStep& tasks_;
  const Coordinates at_;
  std::optional<ContextMemory> context_;
  const std::int32_t zero_ = zero_of(layout_);
  const OffloadPlaces places_ = layout_.offload;
  const schedules::Versions versions_ = versions_of(layout_);
  const bool frees_gradients_ = layout_.update == Update::per_bucket;
  std::map<std::int32_t, StageState> stages_;
  const std::vector<schedules::HandOver> hand_overs_ = hand_overs_of(step_, tasks_);  // by task
  std::vector<MemoryEvent> events_;
  std::vector<Touch> kept_;  // until the end of the step
};

}  // namespace

HeldBytes held_in_step(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                       const schedules::Step& step, std::int32_t rank) {
  const schedules::RankStep& tasks = step.of_rank[static_cast<std::size_t>(rank)];
  const bool holds = std::any_of(tasks.tasks.begin(), tasks.tasks.end(), is_held);
  const std::int64_t others =
      holds ? slots_of_copies(tasks, copied_bytes(model, layout, plans, step, rank)).room_bytes : 0;
  return RankMemory(model, layout, plans, step, rank).held(others);
}

std::vector<std::int64_t> copied_bytes(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                                       const schedules::Step& step, std::int32_t rank) {
  std::vector<std::int64_t> bytes = RankMemory(model, layout, plans, step, rank).copied();
  const std::vector<Task>& tasks = step.of_rank[static_cast<std::size_t>(rank)].tasks;
  const auto held = std::find_if(tasks.begin(), tasks.end(), is_held);
  if (held == tasks.end()) return bytes;
  add_held(step.of_rank[static_cast<std::size_t>(held->peer)].tasks,
           RankMemory(model, layout, plans, step, held->peer).copied(), tasks, bytes);
  return bytes;
}

}  // namespace lockstep::workload
