// How a rank of a run is set up, and when its tasks ran: the same for training and for benchmarks of its steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/backends/mesh.h"
#include "core/device.h"
#include "kernels/base/context.h"
#include "schedules/interpreter/interpreter.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/timeline.h"
#include "trainer/model/gpt_stage.h"
#include "trainer/train/options.h"
#include "trainer/worker/train_worker.h"

namespace lockstep::trainer {

// The context that runs a rank's kernels in a CUDA device's stream; both outlive it. A bug of ours in a build without
// CUDA.
std::shared_ptr<kernels::CudaContext> make_cuda_context(core::Device& device, core::Stream& stream, int rank);

GptShape shape_of(const TrainOptions& options, std::int32_t rank);

// Collectives and copies that run beside kernels have a thread of their own; those of layers, which kernels wait for,
// run in the rank's. What may not be threaded (MeshRank) goes one by one, in an order that is the same on all ranks.
schedules::InterpreterOptions interpreter_of(const TrainOptions& options, bool threaded);

// Whether collectives run in threads of their own: not where MPI may be called by one thread only, nor on CUDA, where
// they are queued.
bool is_threaded(const TrainOptions& options);

// Collectives that run in the rank's own thread, which has the kernels.
schedules::BlockingLanes blocking_lanes(const TrainOptions& options);

// Each rank has the threads of its kernels, and those in which collectives wait beside them: with more of all than
// cores a wait gives its core away at once.
backends::MeshOptions mesh_of(const TrainOptions& options);

// The step of a run, of which replicas that step by themselves have one each.
TrainStep step_of(const TrainOptions& options);

// The ranks that have the same part of the model in each replica, where replicas step by themselves; else none.
std::vector<backends::Channel> peers_of(const TrainOptions& options);

// The first core of the rank's thread pool: -1 where ranks cannot have cores of their own.
int first_core_of(const TrainOptions& options, std::int32_t rank);

// When the tasks of the step that a rank's worker has just run ran, on all ranks, from the first rank's start, which
// was at `start_ns` of the worker; `spans` are run_rank()'s. Clocks are those of one host; ranks of other hosts begin
// at their own start. All ranks call it together.
schedules::StepTimeline gather_timeline(backends::MeshRank& mesh, std::int64_t start_ns,
                                        std::span<const schedules::TaskSpan> spans);

}  // namespace lockstep::trainer
