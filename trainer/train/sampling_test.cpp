#include "trainer/train/sampling.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace lockstep::trainer {
namespace {

TEST(Sampling, DrawsByTheSoftmax) {
  const std::array<float, 3> logits{std::log(1.0F), std::log(2.0F), std::log(5.0F)};
  std::array<int, 3> drawn = {};
  for (int i = 0; i < 800; ++i) ++drawn[static_cast<std::size_t>(drawn_word(logits, 1, (i + 0.5) / 800))];
  EXPECT_NEAR(drawn[0], 100, 1);
  EXPECT_NEAR(drawn[1], 200, 1);
  EXPECT_NEAR(drawn[2], 500, 1);
}

TEST(Sampling, WithoutTemperatureTheLargestAndWithMuchAlmostEven) {
  const std::array<float, 4> logits{0, 3, 3, 1};
  EXPECT_EQ(drawn_word(logits, 0, 0.99), 1);
  std::array<int, 4> drawn = {};
  for (int i = 0; i < 400; ++i) ++drawn[static_cast<std::size_t>(drawn_word(logits, 1e6, (i + 0.5) / 400))];
  for (const int times : drawn) EXPECT_NEAR(times, 100, 1);
}

}  // namespace
}  // namespace lockstep::trainer
