// A block of a transformer layer, its embedding or its loss as the trainer runs it on its ranks: a stage of the model
// with one part, of whose step only the block's kernels and collectives run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/step/part.h"
#include "bench/step/pass.h"
#include "collectives/backends/mesh.h"
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
  bool causal = true;
  // Tiles of rows (trainer/model/part_run.h). With several, all rows of attention's core and of weight gradients are
  // processed at once, and everything else tile by tile, so that the exchange of a tile overlaps with the kernels of
  // the next.
  std::int32_t row_tiles = 1;
  // The share in which the time of an operation's kernels, or of its exchanges, counts; empty: a TaskKind.
  std::function<std::size_t(workload::OperationKind, bool is_exchange)> share_of = {};
};

// The operations that run.
std::vector<workload::OperationKind> kinds_of(trainer::GptStage::Block block);
// The stage: a layer, an embedding or a head.
workload::StageSlice stage_of(trainer::GptStage::Block block);
// The forward and the backward of the block on all ranks. A loss has no backward: its forward makes the gradient.
schedules::Step step_of(const LayerBlock& block);
// The groups of ranks that have collectives in it.
std::vector<backends::Channel> channels_of(const schedules::Step& step);
// Bytes that each rank sends, by direction, in collectives that send the fewest (schedules::wire_bytes).
std::array<double, 2> wire_bytes_of(const LayerBlock& block);
// Throws a usage Error that names --algo if the collectives that it names have no such algorithm (Exchanger).
void check_algorithm(const LayerBlock& block, const std::string& algorithm);
// The stage's parameters that the block's operations use, in the order of workload::parameters_of(), with
// random initial values, so that a forgotten one shows; parameters that are not used have one element. `rank`: of the
// block's layout.
std::vector<workload::Parameter> parameters_of(const LayerBlock& block, std::int32_t rank);
bool is_used(const workload::Parameter& parameter);

// A block's input, and the gradient of its output, on one rank; or the ids that it needs.
struct LayerInputs {
  std::vector<float> x = {};
  std::vector<float> dy = {};
  std::vector<std::int32_t> ids = {};  // tokens of an embedding, targets of a loss
};
// Normal values, functions of the name and the seed.
std::vector<float> random_rows(const std::string& name, std::int64_t count);

// The block on one rank. Its weights are functions of their names and the seed.
class LayerRank {
 public:
  // `rank`: of the block's layout. `mesh`: with channels_of() as its channels; nullptr if the block has one rank. The
  // arguments must outlive this.
  LayerRank(const LayerBlock& block, std::int32_t rank, const LayerInputs& inputs, const parallel::Workspace& workspace,
            const backends::MeshRank* mesh = nullptr, const std::string& algorithm = "");

  // In mode kernels, exchanges have buffers but move nothing.
  const Pass& pass(Mode mode, Direction direction) const;
  void run_alone();       // begins, and runs all tasks in order in the calling thread
  void begin(Mode mode);  // before a forward
  void end(Mode mode);    // after its backward: frees what the trainer keeps
  // Between begin() and end(), after the forward and the backward.
  std::vector<float> y() { return values_of(ends().y()); }
  std::vector<float> dx() { return values_of(ends().dx->in()); }
  std::vector<float> gradient(std::size_t parameter) { return values_of(store_->gradients(0).of(parameter).in()); }

  trainer::GptStage& stage() { return *stage_; }
  kernels::In x() const { return x_.in(); }
  kernels::In weight(std::size_t parameter) const { return store_->weight(parameter); }
  // By task of the step: median time of a kernel in mode kernels, 0 for exchanges.
  std::vector<double> kernel_us() const;

 private:
  // A task of the passes.
  struct Piece {
    schedules::Task task;
    Exchanger* exchanger = nullptr;
    // An exchange: its collective and the bytes of its buffers, from the last pass in which it ran.
    collectives::Operation operation = {};
    std::int64_t input_bytes = 0;
    std::int64_t output_bytes = 0;
    std::vector<double> us = {};  // a kernel: its times in mode kernels
  };
  using Passes = std::array<Pass, 2>;  // by direction

  parallel::Tensor tensor_of(const std::vector<float>& values) const;
  // The backward has a task before the step's own.
  bool begins_backward() const;
  void make_passes();
  void make_tiled_passes(std::size_t direction);
  // Rows in tiles: a run of tasks. Gathers of all tiles come first. Returns the last task.
  int add_in_tiles(std::size_t direction, const std::vector<schedules::Task>& tasks);
  int add(std::size_t direction, const schedules::Task& task, int after);
  std::size_t share_of(workload::OperationKind kind, bool moves) const;
  void make_exchange_passes();
  void exchange(Piece& piece, bool moves);
  const backends::Channel& members_of(const schedules::Task& exchange) const {
    return step_.groups[static_cast<std::size_t>(exchange.peer)].ranks;
  }
  trainer::GptStage::BlockEnds ends() { return stage_->ends_of(block_.block, 0); }
  std::vector<float> values_of(kernels::In values) const;
  parallel::Tensor buffer(core::DType dtype, std::int64_t elems) const;

  const LayerBlock& block_;
  const parallel::Workspace& workspace_;
  const trainer::GptShape shape_;
  const schedules::Step step_;
  const schedules::RankStep& tasks_;
  std::map<std::vector<std::int32_t>, std::unique_ptr<Exchanger>> exchangers_;  // by members
  const parallel::Tensor x_, dy_;
  std::unique_ptr<parallel::ParameterStore> store_;
  std::unique_ptr<trainer::GptStage> stage_;
  Passes whole_, kernels_, exchanges_;
  std::deque<Piece> pieces_;               // forward, then backward
  std::vector<parallel::Tensor> buffers_;  // for exchanges alone
};

// Makes the whole block on one rank, on this host's CPU, with this many threads of kernels.
void on_one_rank(const LayerBlock& block, const LayerInputs& inputs, int threads,
                 const std::function<void(LayerRank&, const parallel::Workspace&)>& use);

// A block as a benchmark's part, on one of the ranks that share it.
class LayerPart : public PassPart {
 public:
  LayerPart(PartSite& site, LayerBlock block, const std::string& algorithm, const LayerInputs& inputs)
      : PassPart(site.runner),
        block_(std::move(block)),
        layer_(block_, site.index(), inputs, site.workspace, &site.rank, algorithm) {}

  const Pass& pass(Mode mode, Direction direction) const final { return layer_.pass(mode, direction); }
  void begin(Mode mode) override { layer_.begin(mode); }
  void end(Mode mode) override { layer_.end(mode); }

 protected:
  const LayerBlock block_;
  LayerRank layer_;
};

}  // namespace lockstep::step_bench
