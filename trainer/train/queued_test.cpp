// The trainer on a device whose work is queued in several streams: losses and norms are the CPU's bit for bit whatever
// runs when, and waits between streams put all that touches the same memory in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "schedules/interpreter/interpreter.h"
#include "testing/trainer/queued_device.h"
#include "testing/trainer/run.h"
#include "trainer/train/rank_trainer.h"

namespace lockstep::trainer {
namespace {

constexpr std::int64_t kFewSteps = 2;

// Names the current task to the device.
class NamesTasks final : public schedules::StageWorker {
 public:
  NamesTasks(schedules::StageWorker& inner, const schedules::RankStep& rank, QueuedState& state)
      : inner_(inner), rank_(rank), state_(state) {}
  ~NamesTasks() override { state_.label = "outside"; }
  bool begin(std::uint32_t task) override {
    name(task);
    return inner_.begin(task);
  }
  bool ended(std::uint32_t task) override {
    name(task);
    return inner_.ended(task);
  }
  void idle(int thread) override { inner_.idle(thread); }
  void finish() override {
    state_.label = "end";
    inner_.finish();
  }
  schedules::TaskSpan span_of(std::uint32_t task) const override { return inner_.span_of(task); }

 private:
  void name(std::uint32_t task) {
    const schedules::Task& named = rank_.tasks[task];
    state_.label = schedules::text_of(named) + " part " + std::to_string(named.part);
  }
  schedules::StageWorker& inner_;
  const schedules::RankStep& rank_;
  QueuedState& state_;
};

struct QueuedRun {
  TrainResult result;
  std::vector<std::string> races;              // on all ranks
  int waits = 0;                               // that rank 0 has queued
  int takings = 0;                             // on all ranks, in steps and validations
  int late_takings = 0;                        // those after the first step
  int captures = 0;                            // on rank 0
  double sent_before = 0;                      // bytes, in collectives, before the first step
  double sent = 0;                             // and after the last
  std::vector<schedules::TaskSpan> last = {};  // spans of rank 0 in the last step
};

TrainOptions few_steps(const workload::Layout& layout) {
  TrainOptions options = options_of(layout, kFewSteps);
  options.model.layers = 2;
  return options;
}

// `left_out`: the wait of rank 0 that is skipped.
QueuedRun run_queued(TrainOptions options, const QueuedOptions& queued, int left_out = -1) {
  const bool graph = std::exchange(options.graph, false);  // options that only CUDA has are not refused here
  options = checked(std::move(options));
  options.device.cuda = true;
  options.graph = graph;
  std::atomic<std::uint64_t> devices{0};
  options.wrap_device = [&](std::unique_ptr<core::Device> /*none*/) {
    QueuedOptions its = queued;
    its.seed = core::hash64(queued.seed, devices++);
    return std::make_unique<QueuedDevice>(its);
  };
  QueuedRun run;
  std::mutex mutex;
  run_trainers(options, [&](const TrainStep& made, RankTrainer& trainer) {
    auto& state = dynamic_cast<QueuedDevice&>(trainer.model().memory().device()).state();
    const std::int32_t rank = trainer.model().rank();
    state.waits = 0;  // a rehearsal has some too
    if (rank == 0) state.left_out = left_out;
    const int takings = state.takings;
    double sent = 0;
    for (std::size_t lane = 0; lane < schedules::kNumLanes; ++lane) {
      sent += trainer.model().collectives().sent_bytes(static_cast<schedules::Lane>(lane));
    }
    const auto wrap = [&](schedules::StageWorker& worker) {
      return std::make_unique<NamesTasks>(worker, made.step.of_rank[static_cast<std::size_t>(rank)], state);
    };
    std::vector<StepReport> steps;
    double loss = 0;
    int first_takings = 0;
    for (std::int64_t step = 1; step <= options.steps; ++step) {
      steps.push_back(trainer.train_step(step, wrap));
      if (step == 1) first_takings = state.takings;
      if (step == options.steps || options.validate_every > 0) loss = trainer.validate();
    }
    const schedules::StepTimeline timeline = trainer.gather_timeline();
    const std::lock_guard lock(mutex);
    for (const std::string& race : state.checker.races())
      run.races.push_back("rank " + std::to_string(rank) + ": " + race);
    run.takings += state.takings - takings;
    run.late_takings += state.takings - first_takings;
    for (const double bytes : trainer.model().collectives().sent_bytes()) run.sent += bytes;
    run.sent_before += sent;
    if (rank != 0) return;
    run.result.steps = std::move(steps);
    run.result.validation_loss = loss;
    run.waits = state.waits;
    run.captures = state.captures;
    run.last = timeline.front();
  });
  return run;
}

void expect_no_races(const QueuedRun& run) {
  for (const std::string& race : run.races) ADD_FAILURE() << race;
}

void expect_the_same_queued(const TrainOptions& options) {
  SCOPED_TRACE(text_of(options.layout));
  const TrainResult at_once = run(options);
  for (const std::uint64_t seed : {1u, 2u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const bool threads : {false, true}) {
      const QueuedRun queued = run_queued(options, {.threads = threads, .seed = seed});
      EXPECT_EQ(difference(at_once, queued.result, 0), "");
      expect_no_races(queued);
    }
  }
}

TEST(QueuedTrainer, OneRank) {
  expect_the_same_queued(few_steps({.microbatches = 2}));
}

TEST(QueuedTrainer, DataParallelWithEveryStageOfZero) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    expect_the_same_queued(few_steps({.dp = 2, .zero = zero, .microbatches = 2, .bucket_cap_bytes = 20'000}));
  }
}

TEST(QueuedTrainer, ShardsInReplicas) {
  expect_the_same_queued(few_steps({.dp = 4, .zero = 3, .shard_ranks = 2, .bucket_cap_bytes = 20'000}));
}

TEST(QueuedTrainer, ASecondaryCopy) {
  expect_the_same_queued(few_steps({.dp = 4, .zero = 3, .secondary_ranks = 2, .microbatches = 2}));
}

TEST(QueuedTrainer, TheOptimizersStatesInTheHostsMemory) {
  for (const std::int32_t zero : {0, 3}) {
    expect_the_same_queued(
        few_steps({.dp = 2, .zero = zero, .microbatches = 2, .offload = {.optimizer = workload::Offload::host}}));
  }
}

TEST(QueuedTrainer, TensorParallel) {
  expect_the_same_queued(few_steps({.tp = 2}));
  expect_the_same_queued(few_steps({.tp = 2, .sequence_parallel = true, .recompute = workload::Recompute::full}));
}

TEST(QueuedTrainer, ContextParallel) {
  using workload::ContextWay;
  for (const ContextWay way :
       {ContextWay::ring, ContextWay::zigzag, ContextWay::allgather, ContextWay::ulysses, ContextWay::lightseq}) {
    workload::Layout layout{.microbatches = 2};
    layout.cp = 3;
    if (way != ContextWay::ring && way != ContextWay::lightseq) layout.cp = 2;
    layout.cp_way = way;
    TrainOptions options = few_steps(layout);
    options.model.sequence = 12;
    expect_the_same_queued(options);
  }
}

TEST(QueuedTrainer, Pipelines) {
  expect_the_same_queued(few_steps({.pp = 2, .schedule = "1f1b", .microbatches = 4}));
  expect_the_same_queued(few_steps({.pp = 2, .schedule = "zb_h1", .microbatches = 4}));
  expect_the_same_queued(few_steps({.pp = 2, .schedule = "seq1f1b", .microbatches = 2, .slices = 2}));
}

TEST(QueuedTrainer, Llama) {
  for (const workload::Layout& layout : {workload::Layout{.tp = 2, .recompute = workload::Recompute::selective},
                                         workload::Layout{.pp = 2, .schedule = "zb_h1", .microbatches = 4}}) {
    TrainOptions options = few_steps(layout);
    options.model = tiny_llama();
    options.model.layers = 2;
    expect_the_same_queued(options);
  }
}

TrainOptions with_experts(workload::Layout layout, double capacity_factor) {
  TrainOptions options = few_steps(layout);
  options.model.experts = 4;
  options.model.experts_per_token = 2;
  options.model.capacity_factor = capacity_factor;
  options.model.balance_loss = 0.01;
  options.model.bias_rate = 0.001;
  return options;
}

// Each rank counts the tokens of its experts on the device; the host reads the counts where their sum decides.
TEST(QueuedTrainer, Experts) {
  expect_the_same_queued(with_experts({.microbatches = 2}, 0));
  expect_the_same_queued(with_experts({.pp = 2, .schedule = "1f1b", .microbatches = 4}, 0));
  for (const workload::Recompute recompute : {workload::Recompute::none, workload::Recompute::full}) {
    workload::Layout layout{.dp = 4, .zero = 2, .microbatches = 2, .bucket_cap_bytes = 20'000, .recompute = recompute};
    layout.ep = 2;
    expect_the_same_queued(with_experts(layout, 1.25));
  }
}

TEST(QueuedTrainer, LoadsOfExpertsAreThoseOfTheCpu) {
  workload::Layout layout{.dp = 2, .microbatches = 2};
  layout.ep = 2;
  const TrainOptions options = with_experts(layout, 1.25);
  const auto at_once = run(options).steps;
  const auto queued = run_queued(options, {.threads = true}).result.steps;
  ASSERT_EQ(queued.size(), at_once.size());
  for (std::size_t i = 0; i < queued.size(); ++i) {
    EXPECT_EQ(queued[i].expert_loads, at_once[i].expert_loads);
    ASSERT_EQ(queued[i].expert_loads.size(), 2u) << "layers";
    const auto& loads = queued[i].expert_loads.front();
    EXPECT_EQ(std::accumulate(loads.begin(), loads.end(), std::int64_t{0}), 2 * options.tokens_per_step());
  }
}

TEST(QueuedTrainer, OldWeights) {
  for (const workload::Layout& layout : {workload::Layout{.pp = 2, .schedule = "pipedream", .microbatches = 4},
                                         workload::Layout{.dp = 2, .pp = 2, .schedule = "pipedream", .microbatches = 4},
                                         workload::Layout{.pp = 2, .schedule = "pipedream_2bw", .microbatches = 4}}) {
    TrainOptions options = few_steps(layout);
    options.model = tiny_llama();
    options.model.layers = 2;
    options.most_norm = 0;
    expect_the_same_queued(options);
    EXPECT_EQ(run_queued(options, {.threads = false, .late = 0}).takings, 0) << "memory is taken before the first step";
  }
}

TEST(QueuedTrainer, AllOfThemInNarrowFormats) {
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16}) {
    TrainOptions options = few_steps(all_of_them());
    options.layout.gradient = dtype;
    options.layout.compute = dtype;
    expect_the_same_queued(options);
  }
}

TEST(QueuedTrainer, Float16SkipsWhatOverflows) {
  TrainOptions options = few_steps({.dp = 2, .bucket_cap_bytes = 20'000});
  options.layout.compute = core::DType::f16;
  options.loss_scale.first = 1e9F;
  expect_the_same_queued(options);
  EXPECT_TRUE(run(options).steps.front().skipped);
}

// To take memory may wait for the device, where a peer's collective may wait for this rank: all is taken before any
// runs.
TEST(QueuedTrainer, TakesNoMemoryFromTheFirstStepOn) {
  const std::vector<workload::Layout> layouts{
      {.microbatches = 2}, {.dp = 2, .zero = 3, .microbatches = 2, .bucket_cap_bytes = 20'000},
      {.tp = 2},           {.pp = 2, .schedule = "1f1b", .microbatches = 4},
      all_of_them(),
  };
  std::vector<TrainOptions> all;
  for (const workload::Layout& layout : layouts) all.push_back(few_steps(layout));
  all.push_back(with_experts({.microbatches = 2}, 0));
  workload::Layout exchanged{.dp = 2, .microbatches = 2};
  exchanged.ep = 2;
  all.push_back(with_experts(exchanged, 1.25));
  for (const TrainOptions& options : all) {
    SCOPED_TRACE(text_of(options.layout));
    const QueuedRun queued = run_queued(options, {.threads = false, .late = 0});
    EXPECT_EQ(queued.takings, 0);
    EXPECT_EQ(queued.sent_before, 0);
  }
}

TrainOptions as_graph(const workload::Layout& layout) {
  TrainOptions options = few_steps(layout);
  options.graph = true;
  options.steps = 4;
  options.validate_every = 1;
  return options;
}

// Returns how often a rank captured.
int expect_the_same_as_graph(const TrainOptions& options) {
  SCOPED_TRACE(text_of(options.layout));
  TrainOptions at_once = options;
  at_once.graph = false;
  const TrainResult wanted = run(at_once);
  int captures = 0;
  for (const bool threads : {false, true}) {
    const QueuedRun queued = run_queued(options, {.threads = threads});
    EXPECT_EQ(difference(wanted, queued.result, 0), "");
    expect_no_races(queued);
    EXPECT_EQ(queued.late_takings, 0) << "a graph is launched again in the memory that it has";
    captures = queued.captures;
  }
  return captures;
}

TEST(QueuedTrainer, AStepAsAGraph) {
  std::vector<workload::Layout> layouts{
      {.microbatches = 2},
      {.dp = 4, .zero = 3, .shard_ranks = 2, .bucket_cap_bytes = 20'000},
      {.dp = 4, .zero = 3, .secondary_ranks = 2, .bucket_cap_bytes = 20'000},
      {.dp = 2, .tp = 2, .sequence_parallel = true, .recompute = workload::Recompute::full},
  };
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    layouts.push_back({.dp = 2, .zero = zero, .microbatches = 2, .bucket_cap_bytes = 20'000});
  }
  for (const workload::Layout& layout : layouts) EXPECT_EQ(expect_the_same_as_graph(as_graph(layout)), 1);
  workload::Layout exchanged{.dp = 2, .microbatches = 2};
  exchanged.ep = 2;
  TrainOptions experts = with_experts(exchanged, 1.25);
  experts.graph = true;
  experts.steps = 4;
  experts.validate_every = 1;
  EXPECT_EQ(expect_the_same_as_graph(experts), 1);
}

// The loss scale is a constant of what is recorded: each time that it changes the step is recorded again.
TEST(QueuedTrainer, AGraphIsRecordedAgainWithAnotherLossScale) {
  TrainOptions options = as_graph({.dp = 2, .bucket_cap_bytes = 20'000});
  options.layout.compute = core::DType::f16;
  options.loss_scale.first = 1e9F;
  options.steps = 8;
  const std::vector<StepReport> steps = run_queued(options, {}).result.steps;
  int scales = 1;
  for (std::size_t i = 1; i < steps.size(); ++i) scales += steps[i].loss_scale != steps[i - 1].loss_scale ? 1 : 0;
  EXPECT_GT(scales, 1);
  EXPECT_EQ(expect_the_same_as_graph(options), scales);
}

TEST(QueuedTrainer, AGraphIsCountedAndTimedAsItsTasksAre) {
  TrainOptions options = as_graph({.dp = 2, .bucket_cap_bytes = 20'000});
  const QueuedRun graph = run_queued(options, {});
  options.graph = false;
  const QueuedRun tasks = run_queued(options, {});
  EXPECT_GT(tasks.sent, 0);
  EXPECT_EQ(graph.sent, tasks.sent);
  ASSERT_EQ(graph.last.size(), tasks.last.size());
  std::int64_t begin_ps = 0;  // begin of kernels, which follow each other
  for (const schedules::TaskSpan& span : graph.last) {
    EXPECT_LE(span.start_ps, span.end_ps);
    EXPECT_GE(span.start_ps, 0);
    begin_ps = std::max(begin_ps, span.start_ps);
  }
  EXPECT_GT(begin_ps, 0);
}

// Leaves waits out, one per run, until three have been found. Some waits imply others, and which ones depends on how
// the ranks' threads interleave, thus on the machine's load: about a third are found on a busy one, two thirds on an
// idle one.
void expect_that_waits_are_found(const TrainOptions& options) {
  SCOPED_TRACE(text_of(options.layout));
  const int waits = run_queued(options, {.threads = false}).waits;
  ASSERT_GT(waits, 0);
  const int wanted = std::min(3, waits);
  int found = 0;
  for (int left_out = 0; left_out < waits && found < wanted; ++left_out) {
    try {
      found += run_queued(options, {.threads = false}, left_out).races.empty() ? 0 : 1;
    } catch (const core::Error&) {
      ++found;  // work in a stream that the capture does not have, or that does not come back
    }
  }
  EXPECT_EQ(found, wanted) << waits << " waits";
}

TEST(QueuedTrainer, AWaitThatAGraphMissesIsFound) {
  TrainOptions options = as_graph({.dp = 2, .zero = 3, .bucket_cap_bytes = 20'000});
  options.steps = 1;
  expect_that_waits_are_found(options);
}

// A missing wait is found by the clocks, whatever has run when. (Some waits are implied by others.)
TEST(QueuedTrainer, AWaitThatIsLeftOutIsFound) {
  const std::vector<workload::Layout> layouts{
      {.dp = 2, .bucket_cap_bytes = 20'000},
      {.dp = 2, .zero = 3, .bucket_cap_bytes = 20'000},
      {.tp = 2},
      {.pp = 2, .schedule = "1f1b", .microbatches = 2},
  };
  for (const workload::Layout& layout : layouts) {
    TrainOptions options = few_steps(layout);
    options.steps = 1;
    expect_that_waits_are_found(options);
  }
}

}  // namespace
}  // namespace lockstep::trainer
