#include <gtest/gtest.h>

#include "testing/collectives/executor_cases.h"
#include "testing/core/thrown.h"

namespace lockstep::executors {
namespace {

// DirectExecutorManyRanks has the other numbers of ranks up to 17, which are too slow for the thread sanitizer.
TEST(DirectExecutor, EveryAlgorithmGivesExactBits) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) EXPECT_EQ(run_cases(ranks, all_algorithms(1000, {})), "");
}

TEST(DirectExecutor, InPlaceReadsAndSegmentsGiveExactBits) {
  const DirectOptions options{.stage_below_bytes = 0, .segment_bytes = 256, .bypass_above_bytes = 0};
  for (int ranks : {2, 3, 4, 7}) EXPECT_EQ(run_cases(ranks, all_algorithms(5000, options)), "");
}

TEST(DirectExecutor, CountsBelowTheRankCount) {
  for (std::int64_t count : {0, 1, 3}) EXPECT_EQ(run_cases(5, all_algorithms(count, {})), "");
}

TEST(DirectExecutor, AllTypesAndOperations) {
  std::vector<Case> cases;
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (core::DType dtype : core::all_dtypes()) {
      for (core::ReduceOp op : core::all_reduce_ops()) {
        if (op != core::ReduceOp::sum && !collectives::has_op(algorithm.kind)) continue;
        cases.push_back({.algorithm = &algorithm, .count = 100, .dtype = dtype, .op = op});
      }
    }
  }
  EXPECT_EQ(run_cases(3, cases), "");
}

TEST(DirectExecutor, RunsOnForkedProcesses) {
  EXPECT_EQ(run_cases(4, all_algorithms(3000, {}), Sharing::processes), "");
}

constexpr transports::LinkSpec kFastLink{1, 100};

TEST(DirectExecutor, EmulatedLinksChangeNoBits) {
  EXPECT_EQ(run_cases(4, all_algorithms(1000, {}), Sharing::threads, kFastLink), "");
  const DirectOptions in_segments{.stage_below_bytes = 0, .segment_bytes = 256, .bypass_above_bytes = 0};
  EXPECT_EQ(run_cases(3, all_algorithms(5000, in_segments), Sharing::threads, kFastLink), "");
}

TEST(DirectExecutor, EmulatedLinksReachAcrossProcesses) {
  EXPECT_EQ(run_cases(4, all_algorithms(3000, {}), Sharing::processes, kFastLink), "");
}

struct LinkCase {
  Sharing sharing = Sharing::threads;
  int absent_rank = -1;    // never calls
  int throwing_rank = -1;  // fails during the call
  std::chrono::milliseconds deadline{60'000};
};

// An all-reduce of two 50 ms messages each way. Returns the error text and the duration in us.
std::pair<std::string, double> all_reduce_over_slow_links(const LinkCase& c) {
  LocalOptions options;
  options.num_ranks = 3;
  options.sharing = c.sharing;
  options.link = transports::LinkSpec{0, 0.001};
  options.deadline = c.deadline;
  LocalGroup group(options);
  const plan::Plan plan =
      algorithms::make_plan(algorithms::parse_choice(collectives::Kind::all_reduce, "two_shot"), 3, 0);
  const auto start = core::Clock::now();
  std::string failure;
  try {
    group.run([&](LocalWorld& world) {
      const Operation operation{.kind = collectives::Kind::all_reduce, .count = 3 * 12'500};
      const auto collective = make_direct(plan, operation, world, {});
      const SharedBuffers buffers = allocate(world, operation);
      if (world.rank() == c.absent_rank) return;
      if (world.rank() == c.throwing_rank) throw core::Error(core::Failure::rank_lost, "rank fails on purpose");
      collective->run(buffers.input, buffers.output);
    });
  } catch (const core::Error& error) {
    failure = error.what();
  }
  return {failure, core::us_between(start, core::Clock::now())};
}

// Each rank receives two pieces of 50,000 bytes twice: 200 ms.
TEST(DirectExecutor, TheStatedLinkCannotBeBeaten) {
  for (const Sharing sharing : {Sharing::threads, Sharing::processes}) {
    const auto [failure, us] = all_reduce_over_slow_links({.sharing = sharing});
    EXPECT_EQ(failure, "");
    EXPECT_GE(us, 200'000);
  }
}

TEST(DirectExecutor, WhoNeverComesToAnEmulatedLinkIsNamedAtTheDeadline) {
  const auto [failure, us] = all_reduce_over_slow_links({.absent_rank = 1, .deadline = std::chrono::milliseconds(100)});
  EXPECT_TRUE(core::has(failure, "rank 1"));
  EXPECT_TRUE(core::has(failure, "does not answer"));
}

TEST(DirectExecutor, AFailureEndsThoseOnEmulatedLinks) {
  const auto [failure, us] = all_reduce_over_slow_links({.throwing_rank = 2});
  EXPECT_TRUE(core::has(failure, "fails on purpose"));
  EXPECT_LT(us, 30'000'000);
}

TEST(DirectExecutorManyRanks, EveryAlgorithmGivesExactBits) {
  for (int ranks : {6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17}) EXPECT_EQ(run_cases(ranks, all_algorithms(1000, {})), "");
}

}  // namespace
}  // namespace lockstep::executors
