#include "core/backoff.h"

#include <gtest/gtest.h>

namespace lockstep::core {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

TEST(Backoff, LooksAreNoMoreThanThreePerCentOfTheWaitLateAndAtMostAHundredMicroseconds) {
  EXPECT_EQ(Backoff::pause_after(microseconds(0)), microseconds(0));
  EXPECT_EQ(Backoff::pause_after(microseconds(320)), microseconds(10));
  EXPECT_EQ(Backoff::pause_after(seconds(1)), Backoff::kLongest);
}

TEST(Backoff, AWaitOfAMillisecondAsksSeldom) {
  const Backoff backoff;
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(1));
  int looks = 0;
  for (; !deadline.passed(); ++looks) backoff.pause();
  EXPECT_GT(looks, 0);
  EXPECT_LT(looks, 100000);  // each poll paused: without pauses there would be tens of millions of polls
}

}  // namespace
}  // namespace lockstep::core
