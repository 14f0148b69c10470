#include "parallel/parameters/initial_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lockstep::parallel {
namespace {

std::vector<float> values_of(const workload::Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                             std::size_t count) {
  std::vector<float> values(count, -7);
  fill_initial_values(parameter, seed, begin, values);
  return values;
}

TEST(InitialValues, PartsAreThoseOfTheWhole) {
  const workload::Parameter matrix{.name = "h.0.mlp.c_fc.weight", .shape = {10, 10}, .deviation = 0.02F};
  const std::vector<float> whole = values_of(matrix, 1, 0, 100);
  for (std::int64_t begin = 0; begin < 10; ++begin) {
    for (std::size_t count = 1; count < 6; ++count) {
      const std::vector<float> part = values_of(matrix, 1, begin, count);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(part[i], whole[static_cast<std::size_t>(begin) + i]);
    }
  }
}

TEST(InitialValues, AreOfSeedAndName) {
  const workload::Parameter a{.name = "a", .shape = {8}, .deviation = 1};
  const workload::Parameter b{.name = "b", .shape = {8}, .deviation = 1};
  EXPECT_EQ(values_of(a, 1, 0, 8), values_of(a, 1, 0, 8));
  EXPECT_NE(values_of(a, 1, 0, 8), values_of(a, 2, 0, 8));
  EXPECT_NE(values_of(a, 1, 0, 8), values_of(b, 1, 0, 8));
}

TEST(InitialValues, WithoutADeviationAreAllTheSame) {
  const workload::Parameter ones{.name = "ln.weight", .shape = {4}, .fill = 1};
  EXPECT_EQ(values_of(ones, 1, 0, 4), std::vector<float>(4, 1.0F));
}

// Moments and tails of 2^20 normal numbers, within five of their standard errors.
TEST(InitialValues, AreNormal) {
  const std::size_t count = std::size_t{1} << 20;
  const workload::Parameter many{.name = "many", .shape = {1 << 20}, .deviation = 3};
  const std::vector<float> values = values_of(many, 5, 0, count);
  const auto n = static_cast<double>(count);
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  double neighbours = 0;
  double beyond_two = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(values[i]) / 3;
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    neighbours += x * static_cast<double>(values[i ^ 1]) / 3;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
  }
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 * std::sqrt(2 / n));
  const double tail = std::erfc(std::sqrt(2.0));
  EXPECT_NEAR(beyond_two / n, tail, 5 * std::sqrt(tail / n));
}

}  // namespace
}  // namespace lockstep::parallel
