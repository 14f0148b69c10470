#include "trainer/worker/rank_model.h"

#include <algorithm>

#include "core/error.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

parallel::MakeStateRoom RankModel::rooms(workload::Offload place) const {
  switch (place) {
    case workload::Offload::none:
      return {};
    case workload::Offload::host:
      return parallel::rooms_of_host(mesh_.device,
                                     lanes_ == nullptr ? nullptr : &lanes_->stream(schedules::Lane::compute));
    default:
      return parallel::rooms_in_files(options_.offload_folder, options_.timeout);
  }
}

RankModel::RankModel(const TrainStep& made, const workload::Coordinates& place, const GptShape& shape,
                     std::int32_t rank, backends::MeshRank& mesh, const ChannelMap& channels,
                     const kernels::Context& where, const CollectiveOptions& collectives, std::uint64_t seed,
                     const LaneQueues* lanes, const RankMemory& memory)
    : layout_(made.layout),
      shape_(shape),
      rank_(rank),
      place_(place),
      where_(where),
      mesh_(mesh),
      lanes_(lanes),
      plans_(made.stages),
      options_(memory),
      memory_(mesh.device, lanes == nullptr ? nullptr : &lanes->stream(schedules::Lane::compute)),
      collectives_(mesh, channels, collectives, memory_),
      versions_(layout_) {
  memory_.set_budget(memory.budget);
  const workload::ShardIndex shared = shard_index(layout_, place_, false);
  const workload::ShardIndex of_experts = shard_index(layout_, place_, true);
  const workload::OffloadPlaces& places = layout_.offload;
  const workload::ShardIndex secondary = secondary_index(layout_, place_);
  parallel::StoreOptions options{.compute = shape.layout.compute,
                                 .gradient = layout_.gradient,
                                 .optimizer = layout_.optimizer,
                                 .zero = zero_of(layout_),
                                 .shards = shared.shards,
                                 .shard = shared.shard,
                                 .expert_shards = of_experts.shards,
                                 .expert_shard = of_experts.shard,
                                 .secondary_ranks = secondary.shards,
                                 .secondary_rank = secondary.shard,
                                 .commits_per_microbatch = layout_.slices,
                                 .frees_gradients = layout_.update == workload::Update::per_bucket,
                                 .offload = {.optimizer = rooms(places.optimizer),
                                             .gradients = rooms(places.gradients),
                                             .parameters = rooms(places.parameters)}};
  if (layout_.delayed_update) options.offload.next_weights = rooms(workload::Offload::host);
  for (const std::int32_t s : stages_of(made, place_.pp)) {
    RankStage& stage = stages_.emplace_back();
    stage.stage = s;
    stage.plan = &made.stages[static_cast<std::size_t>(s)];
    options.offload.counts_in_norm = [this, plan = stage.plan](std::size_t parameter) {
      return workload::counts_in_norm(*plan, parameter, layout_, place_);
    };
    options.has_secondary = has_secondary(*stage.plan, layout_);
    stage.store = std::make_unique<parallel::ParameterStore>(
        memory_, where, parameters_of(shape.model, layout_, stage.plan->place, shape.expert_rank), shape.tensor,
        stage.plan->buckets, options);
    stage.store->initialize(seed);
    versions_.begin_run(*stage.store);
    stage.landed.resize(stage.plan->buckets.size());
    stage.model = std::make_unique<GptStage>(shape_, stage.plan->place, *stage.store, memory_, where);
  }
}

const RankStage* RankModel::find_stage(std::int32_t stage) const {
  const auto found =
      std::find_if(stages_.begin(), stages_.end(), [&](const RankStage& has) { return has.stage == stage; });
  return found == stages_.end() ? nullptr : &*found;
}

RankStage& RankModel::stage(std::int32_t stage) {
  const RankStage* const found = find_stage(stage);
  LOCKSTEP_CHECK(found != nullptr, "a task belongs to a stage of its rank");
  return stages_[static_cast<std::size_t>(found - stages_.data())];
}

std::int32_t RankModel::bucket_of_unit(std::int32_t stage, std::int32_t unit) {
  return this->stage(stage).store->num_buckets() - 1 - unit;
}

}  // namespace lockstep::trainer
