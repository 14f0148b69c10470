#include "schedules/count.h"

#include <gtest/gtest.h>

#include "schedules/text.h"

namespace lockstep::schedules {
namespace {

PeakActivations peak_of(const std::string& list, double w_share) {
  return count_ranks(parse_csv(list, "list", 1), w_share).front().peak;
}

// One stage: the activations held after each action, with a quarter until W, are written below.
TEST(CountActivations, AWeightGradientsShareIsHeldFromIUntilW) {
  const std::string late = "0F0,0I0,0F1,0I1,0F2,0I2,0W0,0W1,0W2,0F3,0I3,0W3";
  //                        1   1/4 5/4 1/2 3/2 3/4 1/2 1/4 0   1   1/4 0
  EXPECT_DOUBLE_EQ(peak_of(late, 0.25).until_weight_gradient, 1.5);  // 1.75 if W gave back nothing, 3 if I did not
  EXPECT_DOUBLE_EQ(peak_of(late, 1).until_weight_gradient, 3);
  EXPECT_DOUBLE_EQ(peak_of(late, 0).until_weight_gradient, 1);
  EXPECT_DOUBLE_EQ(peak_of(late, 0.25).until_input_gradient, 1);
}

// A backward that makes more than the forward kept (recomputation) peaks at I, not at F.
TEST(CountActivations, AShareAboveOnePeaksAtTheInputGradient) {
  EXPECT_DOUBLE_EQ(peak_of("0F0,0I0,0W0,0F1,0I1,0W1", 3).until_weight_gradient, 3);
  EXPECT_DOUBLE_EQ(peak_of("0F0,0F1,0I0,0W0,0I1,0W1", 3).until_weight_gradient, 4);
}

TEST(CountActivations, AWholeBackwardLeavesNothing) {
  for (const double w_share : {0.0, 0.25, 1.0}) {
    EXPECT_DOUBLE_EQ(peak_of("0F0,0B0,0F1,0F2,0B1,0B2", w_share).until_weight_gradient, 2);
  }
}

}  // namespace
}  // namespace lockstep::schedules
