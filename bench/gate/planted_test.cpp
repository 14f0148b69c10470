#include "bench/gate/planted.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"

namespace lockstep::gate {
namespace {

TEST(Planted, CallsAreMoreByThePercentageInTheLongRun) {
  for (const double percent : {0.0, 1.0, 5.0, 7.3, 100.0}) {
    Planted planted(percent);
    std::int64_t made = 0;
    for (int run = 0; run < 1000; ++run) made += planted.calls_for(7);
    EXPECT_NEAR(static_cast<double>(made), 7000 * (1 + percent / 100), 1) << percent;
  }
}

TEST(Planted, CallsAreMadeAndDeniedInOneGo) {
  Planted planted(50);
  int made = 0;
  EXPECT_GE(planted.us_of_call(10, [&] { ++made; }), 0);
  EXPECT_EQ(made, 15);
}

TEST(Planted, ComesFromTheEnvironment) {
  unsetenv("LOCKSTEP_PLANTED_PERCENT");
  EXPECT_EQ(planted_percent(), 0);
  setenv("LOCKSTEP_PLANTED_PERCENT", "2.5", 1);
  EXPECT_EQ(planted_percent(), 2.5);
  for (const char* wrong : {"", "x", "5%", "-1", "1001", "nan"}) {
    setenv("LOCKSTEP_PLANTED_PERCENT", wrong, 1);
    EXPECT_THROW(planted_percent(), core::Error) << wrong;
  }
  unsetenv("LOCKSTEP_PLANTED_PERCENT");
}

}  // namespace
}  // namespace lockstep::gate
