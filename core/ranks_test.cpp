#include "core/ranks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lockstep::core {
namespace {

TEST(Ranks, AThreadThatIsStuckDoesNotHideWhatAnotherHasSaid) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    AbortFlag abort;
    run_ranks(
        Sharing::threads, 3, abort,
        [](int rank) {
          if (rank == 1) throw Error(Failure::timeout, "rank 1: instruction 2 of lane 0 waited 2.5 s for rank 2");
          if (rank == 2) std::this_thread::sleep_for(std::chrono::hours(1));
        },
        std::chrono::milliseconds(50));
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(static_cast<int>(Failure::timeout)),
              "rank 1: instruction 2 of lane 0 waited.*\n.*these ranks have not ended.*: 2\n");
}

TEST(Ranks, ThreadsThatEndInTimeAreWaitedFor) {
  AbortFlag abort;
  int ended = 0;
  const auto run = [&] {
    run_ranks(
        Sharing::threads, 2, abort,
        [&](int rank) {
          if (rank == 1) throw Error(Failure::timeout, "rank 1 failed");
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          ++ended;
        },
        std::chrono::seconds(60));
  };
  EXPECT_THROW(run(), Error);
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace lockstep::core
