#include "collectives/transports/watchdog.h"

#include <gtest/gtest.h>

#include "core/wait.h"

namespace lockstep::transports {
namespace {

using std::chrono::milliseconds;

TEST(Watchdog, ExpiresOnceInACallThatHangs) {
  std::atomic<int> expired{0};
  const auto start = core::Clock::now();
  {
    Watchdog watchdog(milliseconds(80), [&] { ++expired; });
    watchdog.enter();
    while (expired == 0 && core::Clock::now() - start < std::chrono::seconds(10)) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_EQ(expired, 1);
  EXPECT_GE(core::Clock::now() - start, milliseconds(80));
}

TEST(Watchdog, LeavesShortCallsAndTheTimeBetweenCallsAlone) {
  std::atomic<int> expired{0};
  Watchdog watchdog(milliseconds(100), [&] { ++expired; });
  for (int call = 0; call < 300; ++call) {
    watchdog.enter();
    std::this_thread::sleep_for(milliseconds(1));
    watchdog.leave();
  }
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(expired, 0);
}

TEST(Watchdog, EndsAtOnceWhenNothingIsWrong) {
  const auto start = core::Clock::now();
  {
    const Watchdog watchdog(std::chrono::hours(1), [] {});
  }
  EXPECT_LT(core::Clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace lockstep::transports
