// A training run from options to result, on all ranks of this process, and its checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "trainer/train/rank_trainer.h"

namespace lockstep::trainer {

// Callbacks by which rank 0 reports progress, called on its thread.
struct TrainObserver {
  std::function<void(const TrainStep&)> begin = [](const TrainStep&) {};
  // The timeline is empty unless it was requested for this step.
  std::function<void(const StepReport&, const schedules::StepTimeline&)> step = [](const StepReport&,
                                                                                   const schedules::StepTimeline&) {};
  std::function<void(std::int64_t step, double loss)> validation = [](std::int64_t, double) {};
  std::function<void(const std::string&)> note = [](const std::string&) {
  };  // a line about the state that the run starts from
};

// Result of a run, the same on all ranks; filled in on rank 0's process.
struct TrainResult {
  std::vector<StepReport> steps;
  double validation_loss = 0;
  std::string sample;  // generated after the prompt
};

// `options` as checked() returns them. Throws the error of the first rank that failed.
TrainResult train(const TrainOptions& options, const Corpus& corpus, const TrainObserver& observer = {});

// Throws a usage Error with remedies if ranks need more memory than there is. Skipped under mpirun, where it is
// unknown.
void check_room(const TrainOptions& options, const TrainStep& made);

// Memory of the rank that needs most, in bytes by kind, including what independent replicas keep between steps. A
// server's own rank, which runs no step, is left out.
parallel::BytesByKind most_needed(const TrainOptions& options, const TrainStep& made);

// Runs `body` on each rank of this process, with channels for the collectives of these steps; call check_room() before.
void run_ranks(const TrainOptions& options, const TrainStep& made, std::span<const schedules::Step* const> steps,
               const std::function<void(backends::MeshRank&, const ChannelMap&)>& body);

// Core of train(): makes the step and the ranks, and runs `body` on each rank of this process.
void run_trainers(const TrainOptions& options, const Corpus& corpus,
                  const std::function<void(const TrainStep& made, RankTrainer& trainer)>& body);

// Fills in options that depend on others (e.g. the sequence length) and checks all options.
TrainOptions checked(TrainOptions options);

// Checkpoints of a training run: each rank's part of the master weights and of the optimizer's moments, the pending
// error feedback of compressed gradients, and the run's progress.

// All ranks call these together (trainer/checkpoint/checkpoint.h has the rules).
void save_run(RankTrainer& trainer, const TrainOptions& options, std::int64_t step);
// Throws a usage Error if --resume names a checkpoint of another optimizer.
void check_resume(const TrainOptions& options);
// Reads a checkpoint of any layout and returns the number of steps done. Throws a usage Error if the model or the
// optimizer differs.
std::int64_t resume_run(RankTrainer& trainer, const TrainOptions& options, const std::string& path);

// A line for the user if the run cannot use the checkpoint's error feedback, or finds none: if another layout or
// another compression wrote it. Otherwise empty.
std::string note_on_resume(const TrainOptions& options, const std::string& path);

// Throws a usage Error if the model folder of --init-from has anything that the model has not (check_model_folder).
// Returns a line for the user if it has settings that are not known. Otherwise empty.
std::string note_on_weights(const TrainOptions& options);

// Returns TrainOptions::gemm of the run that wrote the checkpoint if that run computed in this dtype: the run then
// continues with the same bits. Empty if it is not recorded.
std::string gemm_of_checkpoint(const std::string& path, core::DType compute);

// Reads weights from a file with Hugging Face's names (trainer/checkpoint/hugging_face.h); moments and the step
// start at 0.
void init_run(RankTrainer& trainer, const TrainOptions& options, const std::string& file);
// Writes such a file through a checkpoint, which is removed again if the run keeps none.
void export_run(RankTrainer& trainer, const TrainOptions& options, std::int64_t step, const std::string& file);

}  // namespace lockstep::trainer
