// A training step as a CUDA graph: its tasks are queued once while the stream of kernels is captured, and every step
// launches the result. Values that change between steps (tokens, learning rate, whether the step counts) are read from
// device memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/device.h"
#include "schedules/step/timeline.h"
#include "trainer/worker/rank_model.h"
#include "trainer/worker/train_worker.h"

namespace lockstep::trainer {

class StepGraph {
 public:
  // The arguments must outlive this. Work must be queued (RankModel::lanes()), and no stage may send messages.
  StepGraph(TrainWorker& worker, RankModel& model);

  // Runs a step as recorded, after TrainWorker::give(); returns when it is done. The step is recorded first if it has
  // not been, or if the gradient scale has changed: `interpret` walks the worker's tasks. A graph keeps the memory that
  // it captured; `rehearse_rest` then allocates memory for the other passes, without collectives. All ranks call it
  // together.
  void run(float gradient_scale, const std::function<void()>& interpret, const std::function<void()>& rehearse_rest);

 private:
  void record(const std::function<void()>& interpret);

  TrainWorker& worker_;
  RankModel& model_;
  core::Stream& stream_;
  float gradient_scale_ = 0;  // the graph's
  std::unique_ptr<core::Graph> graph_;
  StepCollectives::SentBytes sent_bytes_ = {};  // per step
};

}  // namespace lockstep::trainer
