#include "kernels/rotary/rotary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

TEST(Rotary, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(rotary_test_cases()), "");
}

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(0.01F * static_cast<float>(i % 97) - 0.4F);
  return values;
}

std::vector<float> turned(const Rotary& args, std::vector<float> values, int threads = 1) {
  run_on_cpu(args, {values.data(), values.data()}, threads);
  return values;
}

// A rotation is orthogonal, so the gradient rotates back.
TEST(Rotary, TheBackwardTurnsBack) {
  Rotary args{.rows = 40, .length = 10, .heads = 3, .head_columns = 26, .first_position = 1000};
  const std::vector<float> x = ramp(std::size_t{40} * 3 * 26);
  for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
    args.pairs = pairs;
    args.backward = false;
    const std::vector<float> there = turned(args, x, 2);
    args.backward = true;
    const std::vector<float> back = turned(args, there);
    EXPECT_NE(there, x);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back[i], x[i], 1e-6F);
  }
}

// A rank with the second half of a sequence rotates it like a rank that has the whole sequence.
TEST(Rotary, ALaterPartOfASequenceStartsAtItsPosition) {
  const std::vector<float> x = ramp(std::size_t{16} * 8);
  const std::vector<float> whole = turned({.rows = 16, .length = 16, .heads = 1, .head_columns = 8}, x);
  const std::vector<float> half =
      turned({.rows = 8, .length = 8, .heads = 1, .head_columns = 8, .first_position = 8}, {x.begin() + 64, x.end()});
  EXPECT_EQ(half, std::vector<float>(whole.begin() + 64, whole.end()));
}

// Both layouts are equal up to the order of columns, which is how Hugging Face converts Meta's weights.
TEST(Rotary, HalvesAreNeighboursInAnotherOrder) {
  const std::vector<float> x = ramp(std::size_t{5} * 12);
  std::vector<float> reordered(x.size());
  const auto column_in_halves = [](std::size_t c) { return c % 2 * 6 + c / 2; };
  for (std::size_t i = 0; i < x.size(); ++i) reordered[i / 12 * 12 + column_in_halves(i % 12)] = x[i];
  const Rotary args{.rows = 5, .length = 5, .heads = 1, .head_columns = 12};
  Rotary neighbours = args;
  neighbours.pairs = RotaryPairs::neighbours;
  const std::vector<float> by_halves = turned(args, reordered);
  const std::vector<float> by_neighbours = turned(neighbours, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(by_halves[i / 12 * 12 + column_in_halves(i % 12)], by_neighbours[i]);
  }
}

// Llama 3.1: the first 29 of 64 pairs are not changed, the last 29 rotate at an eighth of the speed, and those between
// fall from one to the other.
TEST(Rotary, ScalingSlowsSlowPairsDown) {
  Rotary args{.rows = 1, .length = 1, .heads = 1, .head_columns = 128, .theta = 500000};
  const std::vector<double> plain = rotary_turns(args);
  args.scaling.factor = 8;
  const std::vector<double> scaled = rotary_turns(args);
  std::vector<double> shares;
  for (std::size_t i = 0; i < plain.size(); ++i) shares.push_back(scaled[i] / plain[i]);
  EXPECT_EQ(std::count(shares.begin(), shares.end(), 1.0), 29);
  EXPECT_EQ(std::count_if(shares.begin(), shares.end(), [](double share) { return share < 0.1251; }), 29);
  EXPECT_TRUE(std::is_sorted(shares.rbegin(), shares.rend()));
}

TEST(Rotary, WrongArgumentsAreNamed) {
  const auto refusal = [](const Rotary& args) { return usage_error_of([&] { args.check_shape(); }); };
  EXPECT_EQ(refusal({.rows = 1, .length = 1, .heads = 1, .head_columns = 5}),
            "rotary_fwd: head_columns is 5; allowed: even numbers");
  EXPECT_NE(refusal({.rows = 1, .length = 1, .heads = 1, .head_columns = 4, .stride = 3}).find("stride is 3"),
            std::string::npos);
  EXPECT_NE(refusal({.rows = 1, .length = 1, .heads = 1, .head_columns = 4, .theta = 0}).find("theta is 0"),
            std::string::npos);
  EXPECT_NE(refusal({.rows = 1, .length = 1, .heads = 1, .head_columns = 4, .scaling = {.factor = 0.5}}).find("factor"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::kernels
