#include <gtest/gtest.h>

#include "collectives/executors/direct_cases.h"

namespace lockstep::executors {
namespace {

TEST(DirectExecutorManyRanks, EveryAlgorithmGivesExactBits) {
  for (int ranks : {6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17}) EXPECT_EQ(run_cases(ranks, all_algorithms(1000, {})), "");
}

}  // namespace
}  // namespace lockstep::executors
