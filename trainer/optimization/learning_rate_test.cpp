#include "trainer/optimization/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::trainer {
namespace {

constexpr LearningRate kRate{.peak = 8e-4, .floor = 8e-5, .warmup = 10, .steps = 110};

TEST(LearningRate, WarmsUpLinearly) {
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 1), 8e-5);
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 5), 4e-4);
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 10), 8e-4);
}

TEST(LearningRate, ThenFollowsACosineToTheFloor) {
  EXPECT_NEAR(learning_rate(kRate, 60), (8e-4 + 8e-5) / 2, 1e-12);                         // half way
  EXPECT_NEAR(learning_rate(kRate, 35), 8e-5 + 7.2e-4 * (1 + std::sqrt(0.5)) / 2, 1e-12);  // a quarter: 45 degrees
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 110), 8e-5);
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 100'000), 8e-5);
  for (std::int64_t step = 11; step <= 110; ++step) {
    EXPECT_LT(learning_rate(kRate, step), learning_rate(kRate, step - 1));
  }
}

TEST(LearningRate, WithoutWarmUpItBeginsNearThePeak) {
  const LearningRate rate{.peak = 1, .floor = 0, .warmup = 0, .steps = 1000};
  EXPECT_NEAR(learning_rate(rate, 1), 1, 1e-5);
  EXPECT_EQ(learning_rate(rate, 1000), 0);
}

TEST(LearningRate, AWarmUpAsLongAsTheRunHasNoCosine) {
  const LearningRate rate{.peak = 1, .floor = 0.5, .warmup = 4, .steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(rate, 2), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(rate, 4), 1);
  EXPECT_DOUBLE_EQ(learning_rate(rate, 5), 0.5);
}

}  // namespace
}  // namespace lockstep::trainer
