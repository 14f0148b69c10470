// One rank of a training run: its part of the model, and a step, a validation at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/backends/mesh.h"
#include "trainer/data/corpus.h"
#include "trainer/sync/synchronizer.h"
#include "trainer/train/options.h"
#include "trainer/train/rank_steps.h"
#include "trainer/train/step_graph.h"
#include "trainer/worker/train_worker.h"

namespace lockstep::trainer {

// The same on all ranks.
struct StepReport {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // nats a token, mean over the global batch
  double norm = 0;        // of the gradients, before clipping
  bool skipped = false;   // gradients were not finite
  float rate = 0;
  float loss_scale = 1;
  double seconds = 0;  // of the slowest rank
  // With --sync: of these, the mean that ranks spend behind their own step, waits for others included; and the bytes
  // that the rank which sent most has sent since the start, to other data-parallel ranks.
  double sync_seconds = 0;
  std::int64_t sent_bytes = 0;
  // Steps that ended since the report before which says so: those of replicas that do not wait for each other are told
  // several at once, by the last of them. 0: a later report says it.
  std::int64_t told_at_once = 1;
  // Memory of the rank with the highest peak of all kinds together, at that peak, in the order in which the step's
  // tasks are issued: a number that does not depend on timing, and that was predicted (trainer/step/memory_need.h).
  parallel::BytesByKind peak_bytes = {};
  // As it happened: the most that a rank has held so far, with what ran beside its kernels.
  std::int64_t most_bytes = 0;
  // Where activations are offloaded, of the rank with the most: copied off the device and back in the step, and away at
  // once.
  std::int64_t copied_bytes = 0;
  std::int64_t away_bytes = 0;
  std::vector<std::vector<std::int64_t>> expert_loads = {};  // choices of each expert, layer by layer
};

// A microbatch of every rank alike: tokens and targets, [batch, length] each.
struct RankBatch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

class RankTrainer {
 public:
  // Called on the rank's own thread. What is passed outlives this.
  RankTrainer(const TrainOptions& options, const TrainStep& made, const Corpus& corpus, backends::MeshRank& mesh,
              const ChannelMap& channels);

  void rehearse();  // once, before all else, all ranks together: see RankSteps

  // A worker to run in place of the rank's, which hands its calls on: for measurements that decide when a task may
  // begin.
  using WorkerWrap = std::function<std::unique_ptr<schedules::StageWorker>(schedules::StageWorker&)>;

  // All ranks call each of these together, in the same order.
  StepReport train_step(std::int64_t step, const WorkerWrap& wrap = {});
  // Steps until replicas agree; where they average every so many, nobody waits for others before. Else a step.
  std::vector<StepReport> train_round(std::int64_t first);
  // The replica's own part of a step alone, for which nobody else is waited: its gradients, of its mean loss, are there
  // afterwards, and no weight has changed. The loss in nats a token. --sync async.
  double local_gradients(std::int64_t step);
  // Where updates are delayed: makes the last step's, so that weights are those of all steps so far.
  void settle_update();
  double validate();  // nats a token, over fixed windows of the validation text

  // When the tasks of the last train_step() ran, on all ranks, from the first rank's start. Clocks are those of one
  // host; ranks of other hosts begin at their own start.
  schedules::StepTimeline gather_timeline();
  // Tokens that the model writes behind a prompt, the same on all ranks: a token a forward pass of the whole layout,
  // which sees the last `length` tokens. Drawn from softmax(logits / temperature) over the first `words`; 0: the
  // likeliest.
  std::vector<std::int32_t> generate(const std::vector<std::int32_t>& prompt, std::int64_t count, std::int64_t words,
                                     double temperature);

  // After master weights were changed from outside: what others own is gathered (ZeRO 1 and 2).
  void gather_weights();

  RankModel& model() { return model_; }
  // Memory of this rank's last step, in the order in which its tasks are issued.
  const workload::HeldBytes& held_bytes() const { return held_bytes_; }
  const schedules::InterpreterOptions& interpreter() const { return steps_.interpreter(); }
  LossScale& loss_scale() { return loss_scale_; }

 private:
  void evaluate();  // of the batch that was drawn last
  void run_step(float gradient_scale, const WorkerWrap& wrap);
  std::vector<MicrobatchTokens> views() const;
  void draw(std::int64_t step);
  // Throws a usage Error that names the data if the batch has a word that the model does not.
  void check_words(const RankBatch& batch) const;
  std::vector<float> logits_behind(std::span<const std::int32_t> tokens);  // of all words, behind the last token
  std::int64_t words_a_rank() const;
  double sum_over_ranks(double mine);
  // What a rank knows of its own step; and what of that it tells the others.
  struct Numbers {
    double loss_sum = 0;
    double seconds = 0;
    double sync_seconds = 0;
    std::int64_t sent_bytes = 0;
    std::int64_t most_bytes = 0;
    std::int64_t copied_bytes = 0;
    std::int64_t away_bytes = 0;
    parallel::BytesByKind peak_bytes = {};
  };
  struct OwnStep {
    StepReport report;
    Numbers numbers;
  };
  OwnStep own_step(std::int64_t step, const WorkerWrap& wrap);
  std::vector<StepReport> told_by_all(const std::vector<OwnStep>& steps);
  void straggle(std::int64_t step, double seconds) const;
  std::int64_t sent_bytes() const;  // by this rank so far, to other data-parallel ranks
  std::vector<std::vector<std::int64_t>> expert_loads();
  void balance_experts(const std::vector<std::vector<std::int64_t>>& loads);

  const TrainOptions& options_;
  const TrainStep& made_;
  const Corpus& corpus_;
  backends::MeshRank& mesh_;
  RankSteps steps_;
  RankModel& model_;  // of steps_
  TrainWorker training_;
  TrainWorker forward_;
  const std::int32_t replica_;                  // its data-parallel rank
  std::unique_ptr<Synchronizer> synchronizer_;  // where replicas step by themselves
  std::unique_ptr<StepGraph> graph_;            // of the training step, where it is asked for
  std::vector<RankBatch> batches_;              // a microbatch each
  std::vector<schedules::TaskSpan> spans_;
  workload::HeldBytes held_bytes_;
  LossScale loss_scale_;
};

}  // namespace lockstep::trainer
