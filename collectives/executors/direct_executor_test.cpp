#include <gtest/gtest.h>

#include "collectives/executors/direct_cases.h"

namespace lockstep::executors {
namespace {

// The other numbers up to 17 are in direct_executor_many_ranks_test.cpp: too slow for the thread sanitizer.
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

}  // namespace
}  // namespace lockstep::executors
