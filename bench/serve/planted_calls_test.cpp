#include "bench/serve/orders.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"

namespace lockstep::serve {
namespace {

constexpr const char* kVariable = "LOCKSTEP_PLANTED_PERCENT";

void compute_for(std::chrono::microseconds time) {
  const auto start = PlantedDelay::Clock::now();
  while (PlantedDelay::Clock::now() - start < time) {
  }
}

// The same call, with a delay as long as itself: whatever else the machine does, the delay is not shorter than the
// call.
TEST(PlantedCalls, TakeLongerByThePercentage) {
  constexpr std::chrono::microseconds kCall{20};
  unsetenv(kVariable);
  EXPECT_GE(us_of_calls(100, [&] { compute_for(kCall); }), 20);
  setenv(kVariable, "100", 1);
  int made = 0;
  EXPECT_GE(us_of_calls(100,
                        [&] {
                          compute_for(kCall);
                          ++made;
                        }),
            39.9);
  EXPECT_EQ(made, 100);
  unsetenv(kVariable);
}

TEST(PlantedCalls, AreAsLongAsTheyWereWithoutAPercentage) {
  PlantedDelay delay(0);
  const auto start = PlantedDelay::Clock::now();
  delay.pass(start - std::chrono::hours(1));  // a share of an hour would not end in this test
  EXPECT_LT(PlantedDelay::Clock::now() - start, std::chrono::seconds(10));
}

// A delay is a percentage of each call's time; excess of one delay is subtracted from the next ones.
TEST(PlantedCalls, DelaysAddUpToTheShare) {
  PlantedDelay delay(10);
  constexpr int kCalls = 2000;
  const auto start = PlantedDelay::Clock::now();
  for (int i = 0; i < kCalls; ++i) delay.pass(PlantedDelay::Clock::now() - std::chrono::microseconds(10));
  EXPECT_GE(PlantedDelay::Clock::now() - start, std::chrono::microseconds(kCalls) - std::chrono::microseconds(10));
}

TEST(PlantedCalls, PercentageComesFromTheEnvironment) {
  unsetenv(kVariable);
  EXPECT_EQ(planted_percent(), 0);
  setenv(kVariable, "2.5", 1);
  EXPECT_EQ(planted_percent(), 2.5);
  for (const char* wrong : {"", "x", "5%", "-1", "1001", "nan"}) {
    setenv(kVariable, wrong, 1);
    EXPECT_THROW(planted_percent(), core::Error) << wrong;
  }
  unsetenv(kVariable);
}

}  // namespace
}  // namespace lockstep::serve
