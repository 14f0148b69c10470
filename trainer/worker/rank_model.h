// A rank's stages of the model, and the version of the weights that they read.
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
#include "schedules/generators/catalogue.h"
#include "trainer/model/gpt_stage.h"
#include "trainer/step/train_step.h"
#include "trainer/worker/lanes.h"
#include "trainer/worker/step_collectives.h"
#include "workload/layout.h"

namespace lockstep::trainer {

// Which version of the weights a step's kernels read, by its schedule (schedules::Versions): the policy over the
// versions that a ParameterStore can hold.
//
//   PipeDream (Narayanan et al. 2019, section 3.3): a microbatch holds the weights that its forward begins with, until
//   its own update; the stage p-1-r stages before the last has then updated them p-1-r times.
//   PipeDream-2BW (Narayanan et al. 2021, section 3.1): all microbatches of a step read the weights of the step before,
//   and their gradient changes this step's weights: w(t+1) = w(t) - rate gradient(w(t-1)), where w(-1) is w(0).

class OldWeights {
 public:
  explicit OldWeights(const workload::Layout& layout)
      : versions_(versions_of(layout)),
        updates_a_step_(workload::updates_every_microbatch(layout) ? layout.microbatches : 1) {}

  std::int64_t updates_per_step() const { return updates_a_step_; }  // per stage

  void begin_run(parallel::ParameterStore& store) const {
    if (versions_ != schedules::Versions::double_buffered) return;
    store.hold(kStepBefore);
    store.copy_held();  // so that the first step holds as much memory as all others
  }
  // Called before a kernel of a microbatch. Without `trains`, in a forward-only pass, kernels read the newest weights.
  void before_kernel(parallel::ParameterStore& store, std::int32_t microbatch, bool trains) const {
    if (versions_ == schedules::Versions::one) return;
    if (!trains) return store.read_newest();
    if (versions_ == schedules::Versions::double_buffered) return store.read_as(kStepBefore);
    if (!store.holds(microbatch)) store.hold(microbatch);
    store.read_as(microbatch);
  }
  // Called before the update at the end of a step.
  void before_update(parallel::ParameterStore& store) const {
    if (versions_ == schedules::Versions::double_buffered) store.hold(kStepBefore);
  }

 private:
  static constexpr std::int32_t kStepBefore = 0;  // the only reader of a step

  schedules::Versions versions_;
  std::int64_t updates_a_step_;
};

// One rank's part of a model in training: its pipeline stages with their parameters, and its connections to other
// ranks.

struct RankStage {
  std::int32_t stage = 0;  // pipeline stage
  const workload::StagePlan* plan = nullptr;
  std::unique_ptr<parallel::ParameterStore> store;
  std::unique_ptr<GptStage> model;
  // [bucket] between the reduction within a set of shards and the one over replicas, which run in two lanes.
  std::vector<parallel::ParameterStore::Landed> landed;
};

// Memory limit of a rank's tensors, and the folder of tensors in files.
struct RankMemory {
  std::int64_t budget = 0;  // bytes; 0: the device's memory
  std::string offload_folder = {};
  std::chrono::milliseconds timeout{60'000};
};

class RankModel {
 public:
  // The arguments must outlive this. `shape.tensor` is this rank's; `place` is its position among the ranks of
  // made.layout. Parameters are initialised from the seed. `lanes`: if the mesh has queues.
  RankModel(const TrainStep& made, const workload::Coordinates& place, const GptShape& shape, std::int32_t rank,
            backends::MeshRank& mesh, const ChannelMap& channels, const kernels::Context& where,
            const CollectiveOptions& collectives, std::uint64_t seed, const LaneQueues* lanes = nullptr,
            const RankMemory& memory = {});

  std::int32_t rank() const { return rank_; }
  const workload::Coordinates& place() const { return place_; }
  const workload::Layout& layout() const { return layout_; }  // covers the ranks that step together
  const GptShape& shape() const { return shape_; }
  const kernels::Context& where() const { return where_; }
  // Context for kernels of tasks that reduce: in their lane's stream, if there are streams.
  kernels::Context where(schedules::Lane lane) const { return lanes_ == nullptr ? where_ : lanes_->where(lane); }
  const LaneQueues* lanes() const { return lanes_; }
  backends::MeshRank& mesh() { return mesh_; }
  parallel::Memory& memory() { return memory_; }
  // Allocates offloaded tensors in host memory or files; only for kinds that leave the device.
  parallel::MakeStateRoom rooms(workload::Offload place) const;
  const std::vector<workload::StagePlan>& plans() const { return plans_; }  // plans of all stages
  StepCollectives& collectives() { return collectives_; }
  const OldWeights& versions() const { return versions_; }
  std::vector<RankStage>& stages() { return stages_; }
  RankStage& stage(std::int32_t stage);
  const RankStage* find_stage(std::int32_t stage) const;

  // The bucket of unit `part` of a gather (workload/parameters.h).
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
