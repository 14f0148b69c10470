// A block of a transformer layer as the trainer runs it on its ranks: a stage of the model with one layer, of whose
// step only the block's kernels and collectives run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/step/part.h"
#include "bench/step/pass.h"
#include "collectives/collective.h"
#include "parallel/layers/layers.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "schedules/step/step.h"
#include "trainer/model/gpt_stage.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"

namespace lockstep::step_bench {

inline constexpr std::uint64_t kLayerSeed = 1;  // for all random values

struct LayerBlock {
  workload::Model model;
  workload::Layout layout;
  trainer::GptStage::Block block = trainer::GptStage::Block::mlp;
  std::vector<workload::OperationKind> kinds;  // the operations that run
  bool causal = true;
  // The share in which the time of an operation's kernels, or of its exchanges, counts.
  std::function<std::size_t(workload::OperationKind, bool is_exchange)> share_of;
};

// The forward and the backward of the block on all ranks.
schedules::Step step_of(const LayerBlock& block);

// A block's input, and the gradient of its output, on one rank.
struct LayerInputs {
  std::vector<float> x, dy;
};
// Normal values, functions of the name and the seed.
std::vector<float> random_rows(const std::string& name, std::int64_t count);

// The block on one rank. Its weights are functions of their names and the seed.
class LayerRank {
 public:
  // `rank`: of the block's layout. `exchanger`: nullptr if it has one rank. The arguments must outlive this.
  LayerRank(const LayerBlock& block, std::int32_t rank, const LayerInputs& inputs, Exchanger* exchanger,
            const parallel::Workspace& workspace);

  // In mode kernels, exchanges have buffers but move nothing.
  const Pass& pass(Mode mode, Direction direction) const;
  void begin(Mode mode);  // before a forward
  void end(Mode mode);    // after its backward: frees what the trainer keeps
  // Between begin() and end(), after the forward and the backward.
  std::vector<float> y() { return values_of(ends().y()); }
  std::vector<float> dx() { return values_of(ends().dx->in()); }

  trainer::GptStage& stage() { return *stage_; }
  kernels::In x() const { return x_.in(); }
  kernels::In weight(std::size_t parameter) const { return store_->weight(parameter); }
  // By task of the step: median time of a kernel in mode kernels, 0 for exchanges.
  std::vector<double> kernel_us() const;

 private:
  // A collective with the bytes of its buffers, from the first pass in which it ran.
  struct Move {
    collectives::Operation operation;
    std::int64_t input_bytes = 0;
    std::int64_t output_bytes = 0;
  };
  using Passes = std::array<Pass, 2>;  // by direction

  parallel::Tensor tensor_of(const std::vector<float>& values) const;
  void make_passes();
  void make_exchange_passes();
  void exchange(const schedules::Task& task, std::size_t number, bool moves);
  trainer::GptStage::BlockEnds ends() { return stage_->ends_of(block_.block, 0); }
  std::vector<float> values_of(kernels::In values) const;
  parallel::Tensor buffer(core::DType dtype, std::int64_t elems) const;

  const LayerBlock& block_;
  Exchanger* const exchanger_;
  const parallel::Workspace& workspace_;
  const trainer::GptShape shape_;
  const schedules::Step step_;
  const schedules::RankStep& tasks_;
  const parallel::Tensor x_, dy_;
  std::unique_ptr<parallel::ParameterStore> store_;
  std::unique_ptr<trainer::GptStage> stage_;
  Passes whole_, kernels_, exchanges_;
  std::vector<Move> moves_;                 // by task; without buffers for kernels
  std::vector<std::vector<double>> times_;  // us, by task
  std::vector<parallel::Tensor> buffers_;   // for exchanges alone
};

// A block as a benchmark's part, on one of the ranks that share it.
class LayerPart : public PassPart {
 public:
  LayerPart(PartSite& site, LayerBlock block, const std::string& algorithm, const LayerInputs& inputs)
      : PassPart(site.runner),
        block_(std::move(block)),
        exchanger_(site.rank, 0, algorithm),
        layer_(block_, site.index(), inputs, &exchanger_, site.workspace) {}

  const Pass& pass(Mode mode, Direction direction) const final { return layer_.pass(mode, direction); }
  void begin(Mode mode) override { layer_.begin(mode); }
  void end(Mode mode) override { layer_.end(mode); }

 protected:
  const LayerBlock block_;

 private:
  Exchanger exchanger_;

 protected:
  LayerRank layer_;
};

}  // namespace lockstep::step_bench
