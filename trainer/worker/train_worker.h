// The trainer's StageWorker: runs one rank's tasks of a Step on real tensors. It knows no schedule and no algorithm:
// the interpreter picks the next task, the model defines a part's computation, the store has the parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedules/interpreter/interpreter.h"
#include "schedules/step/step.h"
#include "trainer/worker/lanes.h"
#include "trainer/worker/rank_model.h"
#include "trainer/worker/stage_transfers.h"
#include "trainer/worker/step_end.h"

namespace lockstep::trainer {

// Tokens of one microbatch of this rank: host memory, [batch, length] each, which must outlive the step.
struct MicrobatchTokens {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> targets;
};

class TrainWorker final : public schedules::StageWorker {
 public:
  // The arguments must outlive this.
  TrainWorker(const schedules::Step& step, RankModel& model);

  // Sets the data that the next step takes from the host. Call it before begin_step(), or before launching a step's
  // graph.
  void give(std::span<const MicrobatchTokens> microbatches, const UpdateRules& rules);
  // Call it before run_rank(). `gradient_scale`: factor of each token's loss, including the loss scale.
  void begin_step(Mode mode, float gradient_scale);

  bool begin(std::uint32_t task) override;
  bool ended(std::uint32_t task) override;
  void idle(int thread) override;
  void finish() override;
  schedules::TaskSpan span_of(std::uint32_t task) const override;

  // Called in finish() after all work is done, with the stage that has the head and the first microbatch that passed
  // through it, before its results are freed. Not called if there is none.
  using KeepResults = std::function<void(RankStage&, std::int32_t microbatch)>;
  void keep_results(KeepResults keep) { keep_results_ = std::move(keep); }

  // While `captures` is set, from begin_step() to the end of run_rank() the stream of kernels is captured: the host
  // does not wait, and run_rank() has no times. After each launch of the graph call take_results() and spans().
  void capture(bool captures) { captures_ = captures; }
  void graph_begins();  // call it before each launch
  void take_results();
  std::vector<schedules::TaskSpan> spans() const;

  // Call it between steps: makes the update that the next step would have overlapped, if updates are delayed. All ranks
  // call it.
  void settle_update();
  // Runs the gathers that follow the optimizer on their own.
  void gather_weights();

  // ---- after run_rank()
  // Bytes of activations copied off the device and back so far; 0 without offloading.
  std::int64_t copied_bytes() const { return copies_ ? copies_->moved_bytes() : 0; }
  std::int64_t away_bytes() const {
    return copies_ ? copies_->room_bytes() : 0;
  }                                              // most bytes away at once, in whole blocks
  double loss_sum() const { return loss_sum_; }  // over the tokens of this rank's microbatches; 0 without the head
  const StepEnd& end() const { return end_; }
  std::int64_t start_ns() const { return start_ns_; }

 private:
  struct Span {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };

  bool has_to_wait(std::uint32_t task) const;
  std::vector<parallel::Tensor*> kept(const schedules::Task& task);
  void run(const schedules::Task& task, std::uint32_t index);
  void run_kernel(const schedules::Task& task);
  void run_collective(const schedules::Task& task);
  void exchange_counts(const schedules::Task& task, GptStage& stage);
  void gather(const schedules::Task& task);
  void reduce_gradients(const schedules::Task& task);
  void send(const schedules::Task& task, std::uint32_t index);
  void receive(const schedules::Task& task, std::uint32_t index);
  bool message_ended(const schedules::Task& task, std::uint32_t index);
  void hand_over(const schedules::Task& task, schedules::HandOver what);
  void copy(const kernels::In& from, const kernels::Out& to);

  const schedules::Step& step_;
  const schedules::RankStep& tasks_;
  RankModel& model_;
  StepEnd end_;
  StageMessages messages_;
  const std::unique_ptr<ActivationCopies> copies_;       // if activations are offloaded
  const std::unique_ptr<EvictedActivations> evictions_;  // if this rank evicts them, or holds another's
  TaskOrder order_;
  const std::vector<std::uint32_t> sends_before_;                // number of sends issued before each task
  std::uint32_t sends_ended_ = 0;                                // in this step
  std::map<std::int32_t, std::set<std::int32_t>> microbatches_;  // by stage
  const std::vector<schedules::HandOver> handed_on_;             // by task
  const std::vector<std::string> names_;                         // by task, for profilers
  std::vector<Span> spans_;
  KeepResults keep_results_;
  Mode mode_ = Mode::train;  // mode of this step
  bool captures_ = false;
  std::int64_t start_ns_ = 0;  // steady clock
  double loss_sum_ = 0;
};

}  // namespace lockstep::trainer
