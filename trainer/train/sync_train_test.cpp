// Replicas that step independently: what they must equal in theory.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "schedules/interpreter/interpreter.h"
#include "testing/trainer/run.h"
#include "trainer/train/async_run.h"

namespace lockstep::trainer {
namespace {

TrainOptions with_sync(const workload::Layout& layout, const std::string& sync, std::int64_t steps = 4) {
  TrainOptions options = options_of(layout, steps);
  options.model.layers = 2;
  options.sync = parse_sync(sync);
  return options;
}

// No states, no decay, nothing clipped.
TrainOptions like_sgd(TrainOptions options) {
  options.layout.optimizer = kernels::OptimizerKind::sgd;
  options.optimizer = {};
  options.rate = {.peak = 0.3, .floor = 0.3, .steps = options.steps};
  options.most_norm = 0;
  return options;
}

// The mean of weights that each moved by their own gradient is the weights moved by the mean gradient.
TEST(Average, OfSgdAfterEveryStepIsDataParallelSgd) {
  for (const workload::Layout& layout :
       {workload::Layout{.dp = 4}, workload::Layout{.dp = 2, .tp = 2, .pp = 2, .microbatches = 2}}) {
    const TrainResult all_reduced = run(like_sgd(with_sync(layout, "allreduce")));
    const TrainResult averaged = run(like_sgd(with_sync(layout, "average:every=1")));
    ASSERT_LT(all_reduced.steps.back().loss, all_reduced.steps.front().loss - 0.05) << "something is learned";
    EXPECT_EQ(difference(all_reduced, averaged, 1e-5, Norms::ignored), "");
  }
}

// With AdamW it is not, nor with more steps between: else the test above could not fail.
TEST(Average, OfAdamWOrOfManyStepsIsAnotherRun) {
  const workload::Layout layout{.dp = 4};
  EXPECT_NE(difference(run(with_sync(layout, "allreduce")), run(with_sync(layout, "average:every=1")), 1e-5), "");
  const TrainResult every_step = run(like_sgd(with_sync(layout, "average:every=1", 6)));
  const TrainResult every_third = run(like_sgd(with_sync(layout, "average:every=3", 6)));
  EXPECT_EQ(every_step.steps.front().loss, every_third.steps.front().loss);
  EXPECT_NE(every_step.steps[2].loss, every_third.steps[2].loss);
  EXPECT_NEAR(static_cast<double>(every_step.steps.back().sent_bytes),
              3.0 * static_cast<double>(every_third.steps.back().sent_bytes), 1);
}

// Between agreements nobody waits for others: times are known at a round's end, and shared out over its steps.
TEST(Average, TellsARoundAtItsEnd) {
  const TrainResult result = run(with_sync({.dp = 2}, "average:every=3", 8));
  ASSERT_EQ(result.steps.size(), 8U);
  for (std::size_t s = 0; s < 8; ++s) {
    EXPECT_EQ(result.steps[s].step, static_cast<std::int64_t>(s) + 1);
    EXPECT_EQ(result.steps[s].seconds, result.steps[s / 3 * 3].seconds);
  }
  EXPECT_NE(result.steps[2].seconds, result.steps[3].seconds);
  EXPECT_EQ(result.steps[1].sent_bytes, 0);
  EXPECT_EQ(result.steps[7].sent_bytes, 3 * result.steps[2].sent_bytes) << "after steps 3, 6 and 8";
}

TEST(Server, IsTheAllReduceOfGradients) {
  for (const workload::Layout& layout : {workload::Layout{.dp = 4, .bucket_cap_bytes = 20'000},
                                         workload::Layout{.dp = 2, .tp = 2, .pp = 2, .microbatches = 2}}) {
    const TrainResult all_reduced = run(with_sync(layout, "allreduce"));
    for (const char* const sync : {"root", "server:servers=2"}) {
      EXPECT_EQ(difference(all_reduced, run(with_sync(layout, sync)), 1e-5), "") << sync;
    }
  }
}

// Sums over two ranks have only one order, and without clipping no norm is needed: the bits are the same.
TEST(Server, OfTwoRanksHasTheBitsOfTheAllReduce) {
  const auto run_without_clipping = [](const char* sync) {
    TrainOptions options = with_sync({.dp = 2, .bucket_cap_bytes = 20'000}, sync);
    options.most_norm = 0;
    return run(options);
  };
  const TrainResult all_reduced = run_without_clipping("allreduce");
  for (const char* const sync : {"server:servers=2", "root"}) {
    EXPECT_EQ(difference(all_reduced, run_without_clipping(sync), 0, Norms::ignored), "") << sync;
  }
}

// A root sends weights to all others and gets their gradients; bytes equal the parameters', counted in plans.
TEST(Server, SendsTheBytesOfItsPlans) {
  const auto sent = [](const char* sync) {
    const TrainResult result = run(with_sync({.dp = 4, .bucket_cap_bytes = 20'000}, sync, 2));
    EXPECT_EQ(result.steps[1].sent_bytes, 2 * result.steps[0].sent_bytes);
    return result.steps[0].sent_bytes;
  };
  const std::int64_t weights = 4 * parameters_of(with_sync({.dp = 4}, "root").model);
  EXPECT_EQ(sent("root"), 3 * weights);
  EXPECT_EQ(sent("server:servers=4"), 2 * weights / 4 * 3);
  EXPECT_EQ(sent("server:servers=2"), weights / 2 * 4);
  EXPECT_EQ(sent("average:every=1"), 2 * weights / 4 * 3);
}

// ---- DiLoCo

// Hands a step's tasks on, and calls `when_done` when the step's own work is done.
class Watched final : public schedules::StageWorker {
 public:
  Watched(schedules::StageWorker& inner, std::function<void()> when_done)
      : inner_(inner), when_done_(std::move(when_done)) {}
  bool begin(std::uint32_t task) override { return inner_.begin(task); }
  bool ended(std::uint32_t task) override { return inner_.ended(task); }
  void idle(int thread) override { inner_.idle(thread); }
  void finish() override {
    inner_.finish();
    when_done_();
  }
  schedules::TaskSpan span_of(std::uint32_t task) const override { return inner_.span_of(task); }

 private:
  schedules::StageWorker& inner_;
  std::function<void()> when_done_;
};

using Weights = std::vector<double>;

Weights weights_of(RankTrainer& trainer) {
  Weights all;
  for (RankStage& stage : trainer.model().stages()) {
    for (std::int32_t b = 0; b < stage.store->num_buckets(); ++b) {
      const kernels::InOut masters = stage.store->own_masters(b);
      const auto* const data = static_cast<const float*>(masters.data);
      all.insert(all.end(), data, data + masters.elems);
    }
  }
  return all;
}

// Weights of each rank before and after it agreed with others, [rank][step].
struct Seen {
  std::map<std::int32_t, Weights> start;
  std::map<std::int32_t, std::vector<Weights>> before;
  std::map<std::int32_t, std::vector<Weights>> after;
};

Seen seen_in(const TrainOptions& wanted) {
  const TrainOptions options = checked(wanted);
  std::mutex mutex;
  Seen seen;
  run_trainers(options, [&](const TrainStep&, RankTrainer& trainer) {
    const std::int32_t rank = trainer.model().rank();
    Weights start = weights_of(trainer);
    std::vector<Weights> before;
    std::vector<Weights> after;
    for (std::int64_t step = 1; step <= options.steps; ++step) {
      trainer.train_step(step, [&](schedules::StageWorker& worker) {
        return std::make_unique<Watched>(worker, [&] { before.push_back(weights_of(trainer)); });
      });
      after.push_back(weights_of(trainer));
    }
    const std::lock_guard lock(mutex);
    seen.start[rank] = std::move(start);
    seen.before[rank] = std::move(before);
    seen.after[rank] = std::move(after);
  });
  return seen;
}

// Algorithm 1 of arXiv:2311.08105 in f64, written from torch.optim.SGD's documentation: what all replicas must have
// after each round, given where their own steps took them.
TEST(DiLoCo, TakesTheStepsOfAReference) {
  const TrainOptions options = with_sync({.dp = 3, .bucket_cap_bytes = 20'000}, "diloco:every=2", 6);
  const Seen seen = seen_in(options);
  Weights outer = seen.start.at(0);
  Weights buffer(outer.size(), 0);
  double moved = 0;
  for (std::size_t step = 0; step < 6; ++step) {
    if ((step + 1) % 2 != 0) {
      EXPECT_EQ(seen.before.at(1)[step], seen.after.at(1)[step]) << "no round ends here";
      EXPECT_NE(seen.after.at(0)[step], seen.after.at(1)[step]) << "replicas go their own ways";
      continue;
    }
    for (std::size_t i = 0; i < outer.size(); ++i) {
      double gradient = 0;
      for (const auto& [rank, before] : seen.before) gradient += (outer[i] - before[step][i]) / 3;
      buffer[i] = 0.9 * buffer[i] + gradient;
      outer[i] -= 0.7 * (gradient + 0.9 * buffer[i]);
      moved += std::abs(outer[i] - seen.start.at(0)[i]);
      for (const auto& [rank, after] : seen.after) {
        ASSERT_NEAR(after[step][i], outer[i], 2e-6) << "rank " << rank << ", step " << step << ", element " << i;
      }
    }
    EXPECT_EQ(seen.after.at(0)[step], seen.after.at(2)[step]) << "the same bits";
  }
  EXPECT_GT(moved / static_cast<double>(outer.size()), 1e-3);
}

TEST(DiLoCo, WithAPlainOuterStepOfOneIsTheAverage) {
  const workload::Layout layout{.dp = 2, .pp = 2, .microbatches = 2};
  EXPECT_EQ(difference(run(with_sync(layout, "average:every=2")),
                       run(with_sync(layout, "diloco:every=2:rate=1:momentum=0")), 1e-5),
            "");
}

// ---- the asynchronous server

// SGD applies gradients of a round individually, each with a share of the rate: the sum of all that were taken at the
// same weights.
TEST(Async, SgdWithoutStalenessIsDataParallelSgd) {
  TrainOptions together = like_sgd(with_sync({.dp = 4}, "allreduce"));
  TrainOptions one_by_one = like_sgd(with_sync({.dp = 4}, "async:staleness=0"));
  one_by_one.rate.peak = one_by_one.rate.floor = together.rate.peak / 4;
  EXPECT_EQ(order_of(one_by_one).size(), 4U * 4 + 3U * 4);
  EXPECT_EQ(difference(run(together), run(one_by_one), 1e-5, Norms::ignored), "");
}

TEST(Async, RepeatsBitForBitAndKnowsHowStaleItIs) {
  TrainOptions options = with_sync({.dp = 3}, "async:staleness=2:jitter=1", 5);
  options.straggler = parse_straggler("replica=1,factor=1.5");
  const TrainResult once = run(options);
  EXPECT_EQ(difference(once, run(options), 0), "");
  const Missed missed = missed_in(order_of(options));
  EXPECT_GT(missed.mean, 1);
  EXPECT_LE(missed.most, 10);
  options.seed = 2;
  options.synthetic_bytes = 1 << 14;
  EXPECT_NE(difference(once, run(options), 0), "");
}

// ---- memory, stragglers and refusals

TEST(Sync, MemoryIsWhatWasPredicted) {
  for (const char* const sync : {"server:servers=2", "average:every=2", "diloco:every=2"}) {
    const TrainOptions options = checked(with_sync({.dp = 2, .pp = 2, .microbatches = 2}, sync, 2));
    const TrainResult result = run(options);
    EXPECT_EQ(result.steps.back().peak_bytes, most_needed(options, step_of(options))) << sync;
  }
}

TEST(Straggler, ChangesTimesAndNoLoss) {
  TrainOptions options = with_sync({.dp = 2}, "server:servers=2", 3);
  const TrainResult fast = run(options);
  options.straggler = parse_straggler("replica=1,factor=4,step_ms=20");
  const TrainResult slow = run(options);
  EXPECT_EQ(difference(fast, slow, 0), "");
  for (const StepReport& step : slow.steps) EXPECT_GE(step.seconds, 0.08);
}

TEST(Sync, RefusesWhatReplicasDoNotHave) {
  const auto refused = [](const workload::Layout& layout, const std::string& sync) {
    return refusal_of(with_sync(layout, sync));
  };
  EXPECT_EQ(refused({.dp = 2}, "average:every=2"), "");
  EXPECT_NE(refused({.dp = 1}, "average:every=2").find("--dp 2 or more"), std::string::npos);
  EXPECT_NE(refused({.dp = 2, .zero = 1}, "diloco:every=2").find("--zero 0"), std::string::npos);
  EXPECT_NE(refused({.dp = 2}, "server:servers=3").find("servers=1 to --dp"), std::string::npos);
  EXPECT_NE(refused({.dp = 2, .pp = 2}, "async:staleness=1").find("--pp 1"), std::string::npos);
  TrainOptions straggler = with_sync({.dp = 2}, "allreduce");
  straggler.straggler = parse_straggler("replica=0,factor=2");
  EXPECT_NE(refusal_of(straggler).find("--sync server"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::trainer
