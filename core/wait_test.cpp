#include "core/wait.h"

#include <atomic>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "core/error.h"

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

using std::chrono::milliseconds;

TEST(DeadlineCall, ReturnsWhenTheCallDoes) {
  int value = 0;
  EXPECT_TRUE(returns_in_time([&value] { value = 7; }, std::chrono::seconds(30)));
  EXPECT_EQ(value, 7);
}

TEST(DeadlineCall, PassesOnWhatWasThrown) {
  EXPECT_THROW(returns_in_time([] { throw Error(Failure::nccl, "no"); }, std::chrono::seconds(30)), Error);
}

TEST(DeadlineCall, LeavesBehindACallThatHangs) {
  auto release = std::make_shared<std::atomic<bool>>(false);
  auto ended = std::make_shared<std::atomic<bool>>(false);
  const auto start = Clock::now();
  EXPECT_FALSE(returns_in_time(
      [release, ended] {
        while (!*release) std::this_thread::sleep_for(milliseconds(1));
        *ended = true;
      },
      milliseconds(20)));
  EXPECT_LT(us_between(start, Clock::now()), 10e6);
  EXPECT_FALSE(*ended);
  *release = true;
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (!*ended && !deadline.passed()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(*ended);
}

}  // namespace
}  // namespace lockstep::core
