// One rank of a benchmark that times training steps: flags, state, and the timed step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/place/place.h"
#include "bench/program/program.h"
#include "bench/trainer/flags.h"
#include "collectives/backends/mesh.h"
#include "trainer/data/corpus.h"
#include "trainer/train/options.h"
#include "trainer/train/rank_steps.h"
#include "trainer/worker/rank_model.h"
#include "trainer/worker/train_worker.h"

namespace lockstep::parallel_bench {

// Flags of the benchmarks that time training steps: the model, its ranks, and how long to measure.

inline constexpr int kMostReplicas = 64;

struct StepFlags : program::Invocation {
  std::string model = "micro";    // --model; other flags change parts of it
  trainer::TrainOptions options;  // all options but those that are swept
  mini_train::SequenceFlags sequences;
  std::vector<int> replicas{2};  // swept
  bool all_ranks = true;         // true: all ranks of mpirun; false: the number given by --dp
  program::PlaceFlags place;
  std::int64_t rounds = 10;        // maximum number of timed runs of each way
  std::int64_t warmup_rounds = 3;  // untimed runs before them, in which kernels choose their implementation
  double budget_s = 30;            // per row; 0: no limit
  bool serve = false;              // be a worker for one row (bench/serve/orders.h) instead of measuring
};

void declare_step_flags(program::CommandLine& line, StepFlags& flags);
void read_step_flags(const program::CommandLine& line, StepFlags& flags);
void begin_step_flags(int argc, const char* const* argv, StepFlags& flags);

// Sets the ranks up in the world that --transport names; nullptr: without MPI.
void place_in(transports::MpiWorld* mpi, StepFlags& flags);

// A rank that runs the Steps of one model repeatedly on the same tokens, with the trainer's worker and its interpreter.

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

// The state of a rank's model that a step changes: taken out for comparison, and put back to start again. Parameters
// are whole (ZeRO stage 0), there is one stage, and nothing is queued on the rank's device.

// Elements of each bucket as reduced, padding included.
std::vector<std::int64_t> elems_of_buckets(trainer::RankModel& model);
std::vector<float> gradients_of(trainer::RankModel& model);  // 16-bit gradients are widened

// Master weights in memory order, which is the same on all ranks.
std::vector<float> masters_of(trainer::RankModel& model);

// Resets to the state before the first step: weights are `masters`, moments are zero, and no error feedback is pending.
void start_again(trainer::RankModel& model, const std::vector<float>& masters);

}  // namespace lockstep::parallel_bench
