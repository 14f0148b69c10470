// The part of a model in training that one rank has: its stages, each with its parameters, and how it reaches other
// ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/backends/mesh.h"
#include "kernels/base/context.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "trainer/model/gpt_stage.h"
#include "trainer/step/train_step.h"
#include "trainer/worker/channels.h"
#include "trainer/worker/lane_queues.h"
#include "trainer/worker/old_weights.h"
#include "trainer/worker/step_collectives.h"
#include "workload/groups.h"
#include "workload/layout.h"

namespace lockstep::trainer {

struct RankStage {
  std::int32_t stage = 0;  // of the pipeline
  const workload::StagePlan* plan = nullptr;
  std::unique_ptr<parallel::ParameterStore> store;
  std::unique_ptr<GptStage> model;
  // [bucket] between the sum over shards and that over their replicas, which two lanes have.
  std::vector<parallel::ParameterStore::Landed> landed;
};

// What a rank's tensors may take, and where those are that are in files.
struct RankMemory {
  std::int64_t budget = 0;  // bytes; 0: what the device has
  std::string offload_folder = {};
  std::chrono::milliseconds timeout{60'000};
};

class RankModel {
 public:
  // The arguments outlive this. `shape.tensor` is this rank's; `place` is among the ranks of made.layout. Parameters
  // are initialised from the seed. `lanes`: where the mesh has queues.
  RankModel(const TrainStep& made, const workload::Coordinates& place, const GptShape& shape, std::int32_t rank,
            backends::MeshRank& mesh, const ChannelMap& channels, const kernels::Context& where,
            const CollectiveOptions& collectives, std::uint64_t seed, const LaneQueues* lanes = nullptr,
            const RankMemory& memory = {});

  std::int32_t rank() const { return rank_; }
  const workload::Coordinates& place() const { return place_; }
  const workload::Layout& layout() const { return layout_; }  // of the ranks that step together
  const GptShape& shape() const { return shape_; }
  const kernels::Context& where() const { return where_; }
  // For kernels of tasks that reduce: in their lane's stream, where there are streams.
  kernels::Context where(schedules::Lane lane) const { return lanes_ == nullptr ? where_ : lanes_->where(lane); }
  const LaneQueues* lanes() const { return lanes_; }
  backends::MeshRank& mesh() { return mesh_; }
  parallel::Memory& memory() { return memory_; }
  // Where tensors of such a kind wait; not for those that stay on the device.
  parallel::MakeStateRoom rooms(workload::Offload place) const;
  const std::vector<workload::StagePlan>& plans() const { return plans_; }  // of all stages
  StepCollectives& collectives() { return collectives_; }
  const OldWeights& versions() const { return versions_; }
  std::vector<RankStage>& stages() { return stages_; }
  RankStage& stage(std::int32_t stage);
  const RankStage* find_stage(std::int32_t stage) const;

  // The bucket that unit `part` of a gather names (workload/buckets.h).
  std::int32_t bucket_of_unit(std::int32_t stage, std::int32_t unit);

 private:
  const workload::Layout& layout_;
  const GptShape shape_;
  const std::int32_t rank_;
  const workload::Coordinates place_;
  const kernels::Context& where_;
  backends::MeshRank& mesh_;
  const LaneQueues* const lanes_;
  const std::vector<workload::StagePlan>& plans_;
  const RankMemory options_;
  parallel::Memory memory_;
  StepCollectives collectives_;
  const OldWeights versions_;
  std::vector<RankStage> stages_;
};

}  // namespace lockstep::trainer
