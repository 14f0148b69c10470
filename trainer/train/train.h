// A training run from its options to its end, on all ranks of this process.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "trainer/train/rank_trainer.h"

namespace lockstep::trainer {

// Callbacks by which rank 0 reports while it runs; called on its thread.
struct TrainObserver {
  std::function<void(const TrainStep&)> begin = [](const TrainStep&) {};
  // The timeline is empty where none was asked for.
  std::function<void(const StepReport&, const schedules::StepTimeline&)> step = [](const StepReport&,
                                                                                   const schedules::StepTimeline&) {};
  std::function<void(std::int64_t step, double loss)> validation = [](std::int64_t, double) {};
  std::function<void(const std::string&)> note = [](const std::string&) {};  // a line about what the run starts from
};

// The same on all ranks; filled in on rank 0's process.
struct TrainResult {
  std::vector<StepReport> steps;
  double validation_loss = 0;
  std::string sample;  // behind the prompt
};

// Throws core::Error: usage for what is impossible, before a rank starts; otherwise what the first rank that failed
// says.
TrainResult train(TrainOptions options, const Corpus& corpus, const TrainObserver& observer = {});

// Throws a usage Error where ranks need more memory than there is, with what would help. Under mpirun nobody knows.
void check_room(const TrainOptions& options, const TrainStep& made);

// The memory of the rank that needs most, in bytes by kind; with what replicas that step by themselves keep between
// steps. A server's own rank, which runs no step, is left out.
parallel::BytesByKind most_needed(const TrainOptions& options, const TrainStep& made);

// Runs `body` on each rank of this process, with channels for the collectives of these steps; check_room() goes before.
void run_ranks(const TrainOptions& options, const TrainStep& made, std::span<const schedules::Step* const> steps,
               const std::function<void(backends::MeshRank&, const ChannelMap&)>& body);

// The base of train(): makes the step and the ranks, and runs `body` on each rank of this process.
void run_trainers(const TrainOptions& options, const Corpus& corpus,
                  const std::function<void(const TrainStep& made, RankTrainer& trainer)>& body);

// Fills in what depends on other options (the length of sequences), and checks them all.
TrainOptions checked(TrainOptions options);

}  // namespace lockstep::trainer
