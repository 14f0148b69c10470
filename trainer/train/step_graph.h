// A training step as a graph of the device: its tasks are queued once, while the stream of kernels is captured, and
// launched at once in every step. What changes from step to step (tokens, the learning rate, whether the step counts)
// lies in memory that the graph reads.
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
  // The arguments outlive this. Work is queued (RankModel::lanes()), and no stage sends messages.
  StepGraph(TrainWorker& worker, RankModel& model);

  // Runs a step as recorded, after TrainWorker::give(); returns when it is done. Records it first if it has not yet
  // been, or with another gradient scale: `interpret` walks the worker's tasks. A graph keeps the memory that was at
  // hand; `rehearse_rest` then takes what the other passes need, without collectives. All ranks together.
  void run(float gradient_scale, const std::function<void()>& interpret, const std::function<void()>& rehearse_rest);

 private:
  void record(const std::function<void()>& interpret);

  TrainWorker& worker_;
  RankModel& model_;
  core::Stream& stream_;
  float gradient_scale_ = 0;  // that the graph has
  std::unique_ptr<core::Graph> graph_;
  StepCollectives::SentBytes sent_bytes_ = {};  // in a step
};

}  // namespace lockstep::trainer
