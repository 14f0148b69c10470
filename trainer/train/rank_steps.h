// The steps of one rank: its setup and the times of its tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/backends/mesh.h"
#include "core/device.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "schedules/interpreter/interpreter.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "trainer/model/gpt_stage.h"
#include "trainer/train/options.h"
#include "trainer/worker/lanes.h"
#include "trainer/worker/rank_model.h"
#include "trainer/worker/train_worker.h"

namespace lockstep::trainer {

// Setup of a rank, and the times of its tasks: shared by training and by benchmarks of its steps.

// Returns the context that runs a rank's kernels in a CUDA device's stream; device and stream must outlive it. Must not
// be called in a build without CUDA.
std::shared_ptr<kernels::CudaContext> make_cuda_context(core::Device& device, core::Stream& stream, int rank);

GptShape shape_of(const TrainOptions& options, std::int32_t rank);

// Collectives and copies that overlap with kernels have threads of their own; collectives of layers, which kernels wait
// for, run in the rank's thread. Collectives that may not be threaded (MeshRank) run sequentially, in the same order on
// all ranks.
schedules::InterpreterOptions interpreter_of(const TrainOptions& options, bool threaded);

// True if collectives run in threads of their own. False if only one thread may call MPI, and on CUDA, where
// collectives are queued.
bool is_threaded(const TrainOptions& options);

// Lanes whose collectives run in the rank's own thread, which also runs the kernels.
schedules::BlockingLanes blocking_lanes(const TrainOptions& options);

// Each rank has its kernel threads plus the threads in which overlapped collectives wait. If these exceed the cores,
// waits yield at once.
backends::MeshOptions mesh_of(const TrainOptions& options);

// Returns the step of a run; if replicas step independently, the step of one replica.
TrainStep step_of(const TrainOptions& options);

// If replicas step independently: for each part of the model, the ranks that have it, one per replica. Otherwise empty.
std::vector<backends::Channel> peers_of(const TrainOptions& options);

// First core of the rank's thread pool; -1 if ranks cannot have cores of their own.
int first_core_of(const TrainOptions& options, std::int32_t rank);

// Returns the times at which all ranks ran the tasks of the step that a rank's worker has just run, relative to the
// start of the first rank. `start_ns` is this worker's start; `spans` are those from run_rank(). Clocks are comparable
// within a host only; ranks of other hosts are placed at their own start. All ranks call it together.
schedules::StepTimeline gather_timeline(backends::MeshRank& mesh, std::int64_t start_ns,
                                        std::span<const schedules::TaskSpan> spans);

// Runs Steps of one model on one rank. It owns the threads or streams of kernels, the rank's part of the model, and the
// interpreter's options. Shared by training and by benchmarks that time steps.

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
