// A rank that runs Steps of one model again and again, by the trainer's worker and the one interpreter, on the same
// tokens.
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
  // Called on the rank's own thread. What is passed outlives this.
  StepRank(const trainer::TrainOptions& options, const trainer::TrainStep& made, const trainer::Corpus& corpus,
           backends::MeshRank& mesh, const trainer::ChannelMap& channels);

  // All ranks together, before a step is run (RankSteps::rehearse).
  void rehearse(trainer::TrainWorker& worker, const schedules::Step& step);

  // The tokens of data-parallel rank `replica`; at first the own ones.
  void load(std::int32_t replica);

  struct Timed {
    double ms = 0;  // of the slowest rank, from a barrier to the end of its last task; gradients are zeroed before
    std::vector<schedules::TaskSpan> spans;  // run_rank()'s
  };
  // All ranks together. `number`: of the optimizer step, from 1.
  Timed run_timed(trainer::TrainWorker& worker, const schedules::Step& step, std::int64_t number);
  // This rank alone; the step has no collective.
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
  std::vector<Batch> batches_;  // a microbatch each
};

// Whether all ranks go on: what rank 0 says.
bool agreed(backends::MeshRank& mesh, bool mine);

}  // namespace lockstep::parallel_bench
