#include "trainer/optimization/loss_scale.h"

#include <gtest/gtest.h>

namespace lockstep::trainer {
namespace {

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
