#include "trainer/optimization/step_rules.h"

#include <cmath>

#include <gtest/gtest.h>

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

constexpr LossScaleOptions kOptions{.first = 1024, .least = 256, .most = 4096, .good_steps_to_double = 3};

TEST(LossScale, HalvesOnOverflowDownToTheLeast) {
  LossScale scale{1024, 2};
  scale = next_loss_scale(kOptions, scale, false);
  EXPECT_EQ(scale, (LossScale{512, 0}));
  scale = next_loss_scale(kOptions, scale, false);
  scale = next_loss_scale(kOptions, scale, false);
  EXPECT_EQ(scale, (LossScale{256, 0}));
}

TEST(LossScale, DoublesAfterSoManyGoodStepsInARowUpToTheMost) {
  LossScale scale = first_loss_scale(kOptions);
  for (int step = 0; step < 2; ++step) scale = next_loss_scale(kOptions, scale, true);
  EXPECT_EQ(scale, (LossScale{1024, 2}));
  scale = next_loss_scale(kOptions, scale, true);
  EXPECT_EQ(scale, (LossScale{2048, 0}));
  for (int step = 0; step < 30; ++step) scale = next_loss_scale(kOptions, scale, true);
  EXPECT_EQ(scale.scale, 4096);
}

TEST(LossScale, AnOverflowStartsTheCountAgain) {
  LossScale scale = first_loss_scale(kOptions);
  for (const bool finite : {true, true, false, true, true}) scale = next_loss_scale(kOptions, scale, finite);
  EXPECT_EQ(scale, (LossScale{512, 2}));
  EXPECT_EQ(next_loss_scale(kOptions, scale, true), (LossScale{1024, 0}));
}

// A run that is cut and goes on from the saved value sees the same scales.
TEST(LossScale, TheValueIsAllOfTheState) {
  LossScale whole = first_loss_scale(kOptions);
  LossScale cut = whole;
  for (int step = 0; step < 50; ++step) {
    whole = next_loss_scale(kOptions, whole, step % 7 != 0);
    const LossScale saved = cut;
    cut = next_loss_scale(kOptions, saved, step % 7 != 0);
    EXPECT_EQ(whole, cut);
  }
}

}  // namespace
}  // namespace lockstep::trainer
