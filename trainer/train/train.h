// A training run from options to result, on all ranks of this process.
#pragma once

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

// Throws core::Error: a usage Error for impossible options, before a rank starts; otherwise the error of the first rank
// that failed.
TrainResult train(TrainOptions options, const Corpus& corpus, const TrainObserver& observer = {});

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

// Fills in options that depend on others (e.g. the sequence length) and checks all of them.
TrainOptions checked(TrainOptions options);

}  // namespace lockstep::trainer
