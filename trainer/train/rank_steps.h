// Runs Steps of one model on one rank. It owns the threads or streams of kernels, the rank's part of the model, and the
// interpreter's options. Shared by training and by benchmarks that time steps.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collectives/backends/mesh.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "schedules/interpreter/interpreter.h"
#include "schedules/interpreter/stage_worker.h"
#include "trainer/train/options.h"
#include "trainer/worker/lane_queues.h"
#include "trainer/worker/rank_model.h"

namespace lockstep::trainer {

class RankSteps {
 public:
  // Called on the rank's own thread. The arguments must outlive this.
  RankSteps(const TrainOptions& options, const TrainStep& made, backends::MeshRank& mesh, const ChannelMap& channels);

  // Runs this rank's tasks of a step, from a worker's begin_step() to its end.
  std::vector<schedules::TaskSpan> run(const schedules::Step& step, schedules::StageWorker& worker) {
    return schedules::run_rank(step, model_.rank(), worker, mesh_.abort, interpreter_);
  }

  // If work is queued, calls `pass`, which runs steps that change nothing and run no collective, on all ranks together.
  // Everything that may wait for the device happens here: memory allocation, page-locking, the choice of GEMMs, a
  // library's first call, the making of collectives. In a step such a wait could be for a collective's kernel that
  // itself waits for the waiting rank (collectives/executors/cuda/cuda_ranks.h). If no work is queued, it does nothing.
  void rehearse(const std::function<void()>& pass);
  bool is_queued() const { return lanes_ != nullptr; }

  RankModel& model() { return model_; }
  const RankModel& model() const { return model_; }
  const kernels::Context& where() const { return where_; }
  const schedules::InterpreterOptions& interpreter() const { return interpreter_; }

 private:
  backends::MeshRank& mesh_;
  kernels::ThreadPool pool_;
  std::unique_ptr<LaneQueues> lanes_;  // if work is queued
  kernels::Context where_;
  RankModel model_;
  schedules::InterpreterOptions interpreter_;
};

}  // namespace lockstep::trainer
