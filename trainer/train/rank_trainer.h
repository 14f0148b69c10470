// One rank of a training run: steps, validation, sampling, and captured graphs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/backends/mesh.h"
#include "core/device.h"
#include "schedules/step/step.h"
#include "trainer/data/corpus.h"
#include "trainer/sync/synchronizer.h"
#include "trainer/train/options.h"
#include "trainer/train/rank_steps.h"
#include "trainer/worker/rank_model.h"
#include "trainer/worker/train_worker.h"

namespace lockstep::trainer {

// Draws the next token from a model's logits.

// Returns an index drawn from softmax(logits / temperature) with a number in [0, 1); temperature 0: the first maximum.
std::int64_t drawn_word(std::span<const float> logits, double temperature, double uniform);

// A training step as a CUDA graph: its tasks are queued once while the stream of kernels is captured, and every step
// launches the result. Values that change between steps (tokens, learning rate, whether the step counts) are read from
// device memory.

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

// One rank of a training run: its part of the model, run one step or one validation at a time.

// Report of one step, the same on all ranks.
struct StepReport {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // nats per token, mean over the global batch
  double norm = 0;        // norm of the gradients before clipping
  bool skipped = false;   // gradients were not finite
  float rate = 0;
  float loss_scale = 1;
  double seconds = 0;  // on the slowest rank
  // With --sync: the part of `seconds` that ranks spend after their own step, waits for others included, mean over
  // ranks; and the bytes that the rank that sent most has sent to other data-parallel ranks since the start.
  double sync_seconds = 0;
  std::int64_t sent_bytes = 0;
  // Number of steps that this report completes. Replicas that do not wait for each other report several steps at once,
  // with the last step; 0: a later report covers this step.
  std::int64_t steps_reported = 1;
  // Memory of the rank with the highest peak over all kinds together, at that peak, in the order in which the step's
  // tasks are issued. It does not depend on timing and equals the prediction (trainer/step/train_step.h).
  parallel::BytesByKind peak_bytes = {};
  // Observed peak of a rank so far, which includes work that overlapped with its kernels.
  std::int64_t most_bytes = 0;
  // If activations are offloaded, on the rank with most: bytes copied off the device and back per step, and bytes away
  // at once.
  std::int64_t copied_bytes = 0;
  std::int64_t away_bytes = 0;
  std::vector<std::vector<std::int64_t>> expert_loads = {};  // number of tokens sent to each expert, by layer
};

// One microbatch of a rank: tokens and targets, [batch, length] each.
struct RankBatch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

class RankTrainer {
 public:
  // Called on the rank's own thread. The arguments must outlive this.
  RankTrainer(const TrainOptions& options, const TrainStep& made, const Corpus& corpus, backends::MeshRank& mesh,
              const ChannelMap& channels);

  void rehearse();  // once, before anything else, on all ranks together: see RankSteps

  // Wraps the rank's worker: for measurements that decide when a task may begin and forward its calls.
  using WorkerWrap = std::function<std::unique_ptr<schedules::StageWorker>(schedules::StageWorker&)>;

  // All ranks call each of the following together, in the same order.
  StepReport train_step(std::int64_t step, const WorkerWrap& wrap = {});
  // Runs the steps until replicas next agree, without waiting for others in between; one step if they agree in each.
  std::vector<StepReport> train_round(std::int64_t first);
  // Runs the replica's own part of a step without waiting for others. Afterwards the gradients of its mean loss are
  // complete and no weight has changed. Returns the loss in nats per token. Only with --sync async.
  double local_gradients(std::int64_t step);
  // With delayed updates: makes the last step's update, so that the weights include all steps so far.
  void settle_update();
  double validate();  // returns nats per token over fixed windows of the validation text

  // Times of the tasks of the last train_step() on all ranks, relative to the start of the first rank. Clocks are
  // comparable within a host only; ranks of other hosts are placed at their own start.
  schedules::StepTimeline gather_timeline();
  // Generates tokens after a prompt, the same on all ranks. Each token takes a forward pass of the whole layout over
  // the last `length` tokens and is drawn from softmax(logits / temperature) over the first `words`; temperature 0
  // takes the likeliest.
  std::vector<std::int32_t> generate(const std::vector<std::int32_t>& prompt, std::int64_t count, std::int64_t words,
                                     double temperature);

  // Call this after changing master weights from outside: gathers the weights that other ranks own (ZeRO 1 and 2).
  void gather_weights();

  RankModel& model() { return model_; }
  // Memory of this rank's last step, in the order in which its tasks are issued.
  const workload::HeldBytes& held_bytes() const { return held_bytes_; }
  const schedules::InterpreterOptions& interpreter() const { return steps_.interpreter(); }
  LossScale& loss_scale() { return loss_scale_; }

 private:
  void evaluate();  // runs a forward pass on the batch drawn last
  void run_step(float gradient_scale, const WorkerWrap& wrap);
  std::vector<MicrobatchTokens> views() const;
  void draw(std::int64_t step);
  // Throws a usage Error that names the data if a token of the batch is outside the model's vocabulary.
  void check_words(const RankBatch& batch) const;
  std::vector<float> logits_behind(std::span<const std::int32_t> tokens);  // logits of all words after the last token
  double sum_over_ranks(double mine);
  // A rank's numbers for its own step, and the ones that it sends to the others.
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
  RankModel& model_;  // owned by steps_
  TrainWorker training_;
  TrainWorker forward_;
  const std::int32_t replica_;                  // its data-parallel rank
  std::unique_ptr<Synchronizer> synchronizer_;  // if replicas step independently
  std::unique_ptr<StepGraph> graph_;            // with --graph: of the training step
  std::vector<RankBatch> batches_;              // one per microbatch
  std::vector<schedules::TaskSpan> spans_;
  workload::HeldBytes held_bytes_;
  LossScale loss_scale_;
};

}  // namespace lockstep::trainer
