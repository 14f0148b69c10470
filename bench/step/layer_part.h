// A block of a transformer layer, or a part of one, as the trainer runs it on its ranks: a stage of the model with one
// layer, of whose step only the block's kernels and collectives run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/step/pass.h"
#include "parallel/layers/layers.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "schedules/step/step.h"
#include "trainer/model/gpt_stage.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"

namespace lockstep::step_bench {

struct LayerBlock {
  workload::Model model;
  workload::Layout layout;
  trainer::GptStage::Block block = trainer::GptStage::Block::mlp;
  std::vector<workload::OperationKind> kinds;                    // the operations that run
  std::function<std::size_t(workload::OperationKind)> share_of;  // in which their time counts
};

// The block on one rank: its weights, input and output's gradient, which are functions of their names and of the seed.
class LayerRank {
 public:
  // `rank`: of the block's layout. `input`: the name of this rank's rows. `exchanger`: nullptr if the layout has one
  // rank. The arguments must outlive this.
  LayerRank(const LayerBlock& block, std::int32_t rank, const std::string& input, std::uint64_t seed,
            Exchanger* exchanger, const parallel::Workspace& workspace);

  const Pass& pass(Direction direction) const { return passes_[static_cast<std::size_t>(direction)]; }
  void begin();  // before a forward
  void end();    // after its backward: frees what the trainer keeps of them
  // Between begin() and end(), after the forward and the backward.
  std::vector<float> y() { return values_of(*ends().y); }
  std::vector<float> dx() { return values_of(*ends().dx); }

  trainer::GptStage& stage() { return *stage_; }
  kernels::In x() const { return x_.in(); }
  kernels::In weight(std::size_t parameter) const { return store_->weight(parameter); }

 private:
  parallel::Tensor drawn(const std::string& name) const;
  void make_passes(std::int32_t rank);
  void exchange(const schedules::Task& task);
  trainer::GptStage::BlockEnds ends() { return stage_->ends_of(block_.block, 0); }
  std::vector<float> values_of(const parallel::Tensor& tensor) const;
  void fill(parallel::Tensor& to, const parallel::Tensor& from) const;

  const LayerBlock& block_;
  const std::uint64_t seed_;
  Exchanger* const exchanger_;
  const parallel::Workspace& workspace_;
  const trainer::GptShape shape_;
  const workload::StageSlice place_{.layers = 1};
  parallel::Tensor x_, dy_;
  std::unique_ptr<parallel::ParameterStore> store_;
  std::unique_ptr<trainer::GptStage> stage_;
  std::array<Pass, 2> passes_;  // by direction
};

}  // namespace lockstep::step_bench
