#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "trainer/sync/sync_options.h"
#include "trainer/sync/synchronizer.h"

namespace lockstep::trainer {
namespace {

TEST(SyncOptions, ComeBackFromTheirTexts) {
  for (const char* const text :
       {"allreduce", "root", "server:servers=2", "average:every=7", "diloco:every=20",
        "diloco:every=20:rate=1:momentum=0", "async:staleness=3", "async:staleness=0:jitter=1"}) {
    EXPECT_EQ(text_of(parse_sync(text)), text);
  }
  EXPECT_FALSE(parse_sync("allreduce").replicas_step_alone());
  EXPECT_EQ(parse_sync("diloco").outer_rate, 0.7);
}

TEST(SyncOptions, RefuseWhatTheyCannotRead) {
  for (const char* const text : {"", "ring", "average:every=0", "average:every=1.5", "server:every=2", "diloco:rate=x",
                                 "server:servers=2,", "average:every"}) {
    EXPECT_THROW(parse_sync(text), core::Error) << text;
  }
  for (const char* const text : {"replica=-1", "factor=0.5", "slow", "step_ms=-1", "replica=0", ""}) {
    EXPECT_THROW(parse_straggler(text), core::Error) << text;
  }
}

TEST(Straggler, IsTheSameReplicaOrADrawnOne) {
  const Straggler fixed = parse_straggler("replica=2,factor=3");
  const Straggler drawn = parse_straggler("replica=any,factor=3,step_ms=10");
  EXPECT_EQ(text_of(drawn), "replica=any,factor=3,step_ms=10");
  std::vector<int> slow(4);
  for (std::int64_t step = 1; step <= 400; ++step) {
    int slow_now = 0;
    for (std::int32_t r = 0; r < 4; ++r) {
      EXPECT_EQ(fixed.factor_of(r, 4, 1, step), r == 2 ? 3 : 1);
      if (drawn.factor_of(r, 4, 1, step) == 1) continue;
      ++slow[static_cast<std::size_t>(r)];
      ++slow_now;
    }
    EXPECT_EQ(slow_now, 1);
  }
  for (const int times : slow) EXPECT_NEAR(times, 100, 40);
}

// Against torch.optim.SGD(nesterov=True)'s formula in f64, written on its own: buf = momentum buf + grad, then
// p -= lr (grad + momentum buf), for rounds of replicas that move by random amounts.
TEST(OuterStep, IsNesterovOnTheMeanChange) {
  constexpr std::size_t kCount = 37;
  constexpr std::int32_t kReplicas = 3;
  const OuterRules rules{0.7F, 0.9F};
  core::Random random(5);
  std::vector<float> start(kCount);
  std::vector<float> velocity(kCount, 0);
  for (float& x : start) x = static_cast<float>(random.uniform() - 0.5);
  std::vector<double> p(start.begin(), start.end());
  std::vector<double> buf(kCount, 0);
  for (int round = 0; round < 12; ++round) {
    std::vector<float> change_sum(kCount, 0);
    for (std::size_t i = 0; i < kCount; ++i) {
      double mean = 0;
      for (std::int32_t r = 0; r < kReplicas; ++r) {
        const auto weight = static_cast<float>(start[i] + 0.1 * (random.uniform() - 0.5));
        change_sum[i] += start[i] - weight;
        mean += static_cast<double>(weight) / kReplicas;
      }
      const double grad = static_cast<double>(start[i]) - mean;
      buf[i] = 0.9 * buf[i] + grad;
      p[i] = static_cast<double>(start[i]) - 0.7 * (grad + 0.9 * buf[i]);
    }
    outer_step(rules, kReplicas, change_sum, start, velocity, change_sum);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(start[i], p[i], 1e-6) << round;
      EXPECT_EQ(change_sum[i], start[i]);
    }
  }
}

// ---- the order of an asynchronous server

ArrivalRules rules_of(std::int32_t replicas, std::int64_t steps, std::int64_t staleness,
                      std::function<double(std::int32_t, std::int64_t)> step_time) {
  return {.replicas = replicas, .pushes = steps * replicas, .staleness = staleness, .step_time = std::move(step_time)};
}

std::string text_of(const std::vector<Exchange>& order) {
  std::string text;
  for (const Exchange& exchange : order) {
    text += (text.empty() ? "" : " ") + std::string(exchange.way == Exchange::Way::push ? "+" : "-") +
            std::to_string(exchange.replica) + "." + std::to_string(exchange.step);
  }
  return text;
}

// Replica 1 takes three times as long. With no staleness all pull together, after the slowest; with one step replica 0
// may be one step ahead.
TEST(ArrivalOrder, IsTheOneDrawnByHand) {
  const auto slow = [](std::int32_t replica, std::int64_t) { return replica == 1 ? 3.0 : 1.0; };
  EXPECT_EQ(text_of(arrival_order(rules_of(2, 2, 0, slow))), "+0.1 +1.1 -0.2 -1.2 +0.2 +1.2");
  EXPECT_EQ(text_of(arrival_order(rules_of(2, 2, 1, slow))), "+0.1 -0.2 +0.2 +1.1 -0.3 +0.3");
  EXPECT_EQ(text_of(arrival_order(rules_of(2, 2, 5, slow))), "+0.1 -0.2 +0.2 -0.3 +0.3 +1.1");
}

// The bound's guarantee: no replica begins a step with more than `staleness` done beyond the slowest, so that a
// gradient misses at most 2 staleness + 1 updates of each other one; and pulls and pushes of a replica alternate.
TEST(ArrivalOrder, KeepsTheBound) {
  for (const std::int32_t replicas : {1, 2, 3, 8}) {
    for (const std::int64_t staleness : {0, 1, 3}) {
      const auto drawn = [&](std::int32_t replica, std::int64_t step) {
        core::Random random(core::hash64(static_cast<std::uint64_t>(staleness), static_cast<std::uint64_t>(replica),
                                         static_cast<std::uint64_t>(step)));
        return 0.1 + random.uniform() * (replica == 0 ? 3 : 1);
      };
      const std::vector<Exchange> order = arrival_order(rules_of(replicas, 40, staleness, drawn));
      std::vector<std::int64_t> done(static_cast<std::size_t>(replicas));
      std::int64_t pushes = 0;
      double time = 0;
      for (const Exchange& exchange : order) {
        auto& own = done[static_cast<std::size_t>(exchange.replica)];
        EXPECT_EQ(exchange.step, own + 1);
        EXPECT_GE(exchange.time, time);
        time = exchange.time;
        if (exchange.way == Exchange::Way::pull) {
          EXPECT_LE(own - *std::min_element(done.begin(), done.end()), staleness);
        } else {
          ++own;
          ++pushes;
          EXPECT_LE(exchange.missed, (2 * staleness + 1) * (replicas - 1));
        }
      }
      EXPECT_EQ(pushes, 40 * replicas);
      EXPECT_EQ(text_of(order), text_of(arrival_order(rules_of(replicas, 40, staleness, drawn)))) << "repeatable";
    }
  }
}

// ---- predicted times

ReplicaRun run_of(const char* sync, const char* straggler, std::int64_t steps = 8) {
  return {parse_sync(sync), parse_straggler(straggler), 4, steps, 1};
}

TEST(PredictedTime, IsThatOfTheSlowestWhereAllMeet) {
  for (const char* const sync :
       {"server:servers=4", "root", "average:every=1", "average:every=4", "async:staleness=0"}) {
    EXPECT_DOUBLE_EQ(predicted_step_ms(run_of(sync, "replica=2,factor=3,step_ms=10")), 30) << sync;
    EXPECT_DOUBLE_EQ(predicted_step_ms(run_of(sync, "step_ms=10")), 10) << sync;
  }
}

// A round of all steps takes as long as the replica that is slow most often: counted here on its own.
TEST(PredictedTime, OfAveragesIsTheReplicaThatIsSlowMostOften) {
  const ReplicaRun run = run_of("average:every=100", "replica=any,factor=3,step_ms=10", 40);
  std::vector<int> slow(4);
  for (std::int64_t step = 1; step <= 40; ++step) {
    for (std::int32_t r = 0; r < 4; ++r)
      slow[static_cast<std::size_t>(r)] += run.straggler.factor_of(r, 4, 1, step) > 1;
  }
  const int most = *std::max_element(slow.begin(), slow.end());
  EXPECT_DOUBLE_EQ(predicted_step_ms(run), 10 + 20.0 * most / 40);
  EXPECT_LT(predicted_step_ms(run), predicted_step_ms(run_of("server", "replica=any,factor=3,step_ms=10", 40)));
}

// Without a bound four replicas of 10, 10, 10 and 30 ms push as often as 3 1/3 of 10 ms.
TEST(PredictedTime, WithoutABoundNobodyWaits) {
  const ReplicaRun run = run_of("async:staleness=100000:jitter=0", "replica=3,factor=3,step_ms=10", 1000);
  EXPECT_NEAR(predicted_step_ms(run), 10 * 4 / (10 / 3.0), 0.1);
  EXPECT_NEAR(predicted_step_ms(run_of("async:staleness=8:jitter=0", "replica=3,factor=3,step_ms=10", 1000)), 30, 0.5);
}

}  // namespace
}  // namespace lockstep::trainer
