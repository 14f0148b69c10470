#include "bench/parallel/gradient_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::parallel_bench {
namespace {

using core::DType;

TEST(GradientCheck, DifferingCountsBits) {
  const std::vector<float> wanted{1, -0.0F, 3};
  EXPECT_EQ(differing(wanted, wanted), 0);
  EXPECT_EQ(differing(std::vector<float>{1, 0.0F, std::nextafter(3.0F, 4.0F)}, wanted), 2);
}

SerialSum two_shares() {
  SerialSum sum({2, 1});
  sum.add(std::vector<float>{100, 1, 1e-3F});
  sum.add(std::vector<float>{28, -1, 1e-3F});
  return sum;
}

TEST(GradientCheck, TheBoundIsOfEachParameter) {
  const SerialSum sum = two_shares();
  EXPECT_EQ(sum.beyond_bound(std::vector<float>{128, 0, 2e-3F}, DType::f32, DType::f32), 0);
  // 128 roundings of the largest element of the parameter, 128: 2^-24 2^7 2^7 = 2^-10; and 2^-23 of the shares' sizes.
  const auto found = [](double first, double third) {
    return std::vector<float>{static_cast<float>(first), 0, static_cast<float>(third)};
  };
  const double bound = std::ldexp(1.0, -10);
  EXPECT_EQ(sum.beyond_bound(found(128 + 0.9 * bound, 2e-3), DType::f32, DType::f32), 0);
  EXPECT_EQ(sum.beyond_bound(found(128 + 1.1 * bound, 2e-3), DType::f32, DType::f32), 1);
  // The same distance is far beyond what the small parameter may be off.
  EXPECT_EQ(sum.beyond_bound(found(128, 2e-3 + 0.9 * bound), DType::f32, DType::f32), 1);
}

TEST(GradientCheck, NarrowGradientsMayBeOffByMore) {
  const SerialSum sum = two_shares();
  const std::vector<float> found{128.5F, 0, 2e-3F};
  EXPECT_EQ(sum.beyond_bound(found, DType::f32, DType::f32), 1);
  EXPECT_EQ(sum.beyond_bound(found, DType::bf16, DType::bf16), 0);
}

TEST(GradientCheck, WhatIsNotANumberIsBeyondEveryBound) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(two_shares().beyond_bound(std::vector<float>{nan, 0, 2e-3F}, DType::bf16, DType::bf16), 1);
}

}  // namespace
}  // namespace lockstep::parallel_bench
