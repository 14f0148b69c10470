#include "bench/trainer/peak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

namespace lockstep::mini_train {
namespace {

// Takes the times of a list, one per run, and the last one from then on.
TimedWork work_of(double flops, std::vector<double> seconds, int& runs) {
  return {flops, [seconds, &runs] {
            const auto run = static_cast<std::size_t>(runs++);
            return seconds[std::min(run, seconds.size() - 1)];
          }};
}

TEST(Peak, IsTheBestRunOfTheBestWork) {
  int runs = 0;
  int other_runs = 0;
  const std::array works{work_of(10, {5, 1, 4}, runs), work_of(100, {50, 40, 8, 60}, other_runs)};
  EXPECT_DOUBLE_EQ(best_flops_a_s(works, 5, std::chrono::nanoseconds(0)), 100.0 / 8);
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(other_runs, 5);
}

TEST(Peak, RunsUntilTheSpanHasPassed) {
  int runs = 0;
  const std::array works{work_of(1, {1}, runs)};
  const auto start = std::chrono::steady_clock::now();
  best_flops_a_s(works, 1, std::chrono::milliseconds(30));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
  EXPECT_GT(runs, 1);
}

TEST(Peak, OfThisMachineIsAtLeastThatOfOneProduct) {
  EXPECT_GT(measured_peak_flops(core::DType::f32, 1), 1e8);
}

}  // namespace
}  // namespace lockstep::mini_train
