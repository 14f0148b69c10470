// A rank that runs the Steps of one model repeatedly on the same tokens, with the trainer's worker and its interpreter.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/backends/mesh.h"
#include "trainer/data/corpus.h"
#include "trainer/train/rank_steps.h"
#include "trainer/worker/train_worker.h"

namespace lockstep::parallel_bench {

class StepRank {
 public:
  // Called on the rank's own thread. The arguments must outlive this.
  StepRank(const trainer::TrainOptions& options, const trainer::TrainStep& made, const trainer::Corpus& corpus,
           backends::MeshRank& mesh, const trainer::ChannelMap& channels);

  // All ranks call it together before a step is run (RankSteps::rehearse).
  void rehearse(trainer::TrainWorker& worker, const schedules::Step& step);

  // Loads the tokens of data-parallel rank `replica`; at the start they are this rank's own.
  void load(std::int32_t replica);

  struct Timed {
    double ms = 0;  // slowest rank's time, from a barrier to the end of its last task; gradients are zeroed before
    std::vector<schedules::TaskSpan> spans;  // from run_rank()
  };
  // All ranks call it together. `number` is that of the optimizer step, from 1.
  Timed run_timed(trainer::TrainWorker& worker, const schedules::Step& step, std::int64_t number);
  // Only this rank runs; the step has no collectives.
  void run_alone(trainer::TrainWorker& worker, const schedules::Step& step);

  trainer::RankModel& model() { return steps_.model(); }
  backends::MeshRank& mesh() { return mesh_; }
  std::int32_t rank() const { return steps_.model().rank(); }

 private:
  void begin(trainer::TrainWorker& worker, std::int64_t number, bool rehearses = false);

  const trainer::TrainOptions& options_;
  const trainer::Corpus& corpus_;
  backends::MeshRank& mesh_;
  trainer::RankSteps steps_;
  struct Batch {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
  };
  std::vector<Batch> batches_;  // one microbatch each
};

// Returns rank 0's answer to whether all ranks continue.
bool agreed(backends::MeshRank& mesh, bool mine);

}  // namespace lockstep::parallel_bench
