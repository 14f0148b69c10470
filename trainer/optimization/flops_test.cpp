#include "trainer/optimization/flops.h"

#include <gtest/gtest.h>

namespace lockstep::trainer {
namespace {

constexpr FlopShape kGpt2{.layers = 12, .hidden = 768, .vocabulary = 50257, .length = 1024};

TEST(Flops, Gpt2ByHand) {
  EXPECT_EQ(matrix_parameters(kGpt2), 84'934'656 + 38'597'376);
  EXPECT_DOUBLE_EQ(flops_a_token(kGpt2), 6.0 * 123'532'032 + 113'246'208);
}

// The same, matrix by matrix: 2 FLOPs a multiply-add forward, twice that backward.
TEST(Flops, IsThreeTimesTheForwardsProducts) {
  for (const FlopShape& s : {kGpt2, FlopShape{4, 256, 256, 128}, FlopShape{1, 8, 300, 7}}) {
    const std::int64_t products =
        s.layers * (s.hidden * 3 * s.hidden + s.hidden * s.hidden + 2 * s.hidden * 4 * s.hidden) +
        s.hidden * s.vocabulary;
    const std::int64_t scores_and_values = s.layers * 2 * s.length * s.hidden;
    EXPECT_DOUBLE_EQ(flops_a_token(s), 6.0 * static_cast<double>(products + scores_and_values));
  }
}

TEST(Flops, UtilisationIsAShareOfThePeak) {
  const double peak = 4 * flops_a_token(kGpt2);
  EXPECT_DOUBLE_EQ(model_flops_utilisation(kGpt2, 1, peak), 0.25);
  EXPECT_DOUBLE_EQ(model_flops_utilisation(kGpt2, 3, peak), 0.75);
}

}  // namespace
}  // namespace lockstep::trainer
