// Runs Steps of one model on one rank. It has the threads or streams of kernels, its part of the model, and how tasks
// are interpreted. The same for training and for benchmarks that time steps.
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
  // Called on the rank's own thread. What is passed outlives this.
  RankSteps(const TrainOptions& options, const TrainStep& made, backends::MeshRank& mesh, const ChannelMap& channels);

  // This rank's tasks of a step, from a worker's begin_step() to its end.
  std::vector<schedules::TaskSpan> run(const schedules::Step& step, schedules::StageWorker& worker) {
    return schedules::run_rank(step, model_.rank(), worker, mesh_.abort, interpreter_);
  }

  // Where work is queued: calls `pass`, which runs steps that change nothing, with no collective run, all ranks
  // together. What may wait for the device is done in it: taking memory, page-locking, the choice of GEMMs, the first
  // call of a library, the making of collectives. In a step it could wait for a collective's kernel, which waits for
  // the very rank that waits (collectives/executors/cuda/cuda_ranks.h). Elsewhere it does nothing.
  void rehearse(const std::function<void()>& pass);
  bool is_queued() const { return lanes_ != nullptr; }

  RankModel& model() { return model_; }
  const RankModel& model() const { return model_; }
  const kernels::Context& where() const { return where_; }
  const schedules::InterpreterOptions& interpreter() const { return interpreter_; }

 private:
  backends::MeshRank& mesh_;
  kernels::ThreadPool pool_;
  std::unique_ptr<LaneQueues> lanes_;  // where work is queued
  kernels::Context where_;
  RankModel model_;
  schedules::InterpreterOptions interpreter_;
};

}  // namespace lockstep::trainer
