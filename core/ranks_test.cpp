#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <thread>
#include <tuple>

#include "core/error.h"
#include "core/ranks.h"
#include "core/wait.h"

namespace lockstep::core {
namespace {

TEST(Ranks, AThreadThatIsStuckDoesNotHideWhatAnotherHasReported) {
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

using std::chrono::microseconds;
using std::chrono::milliseconds;
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

// Sets variables of the environment for the life of this object, and unsets all that show what started a process.
class Launcher {
 public:
  explicit Launcher(std::initializer_list<const char*> set) {
    clear();
    for (const char* name : set) setenv(name, "2", 1);
  }
  ~Launcher() { clear(); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

 private:
  static void clear() {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK",
                             "SLURM_STEP_NUM_TASKS"}) {
      unsetenv(name);
    }
  }
};

TEST(StartedProcesses, AreCountedByTheVariablesOfEachLauncher) {
  const auto counts = [](std::initializer_list<const char*> set) {
    const Launcher launcher(set);
    return std::tuple(started_by_mpi(), started_rank(), started_processes());
  };
  EXPECT_EQ(counts({}), std::tuple(false, 0, 1));
  EXPECT_EQ(counts({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}), std::tuple(true, 2, 2));  // mpirun
  EXPECT_EQ(counts({"PMI_RANK", "PMI_SIZE"}), std::tuple(true, 2, 2));                          // srun --mpi=pmi2
  EXPECT_EQ(counts({"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}), std::tuple(true, 2, 2));             // srun --mpi=pmix
  EXPECT_EQ(counts({"SLURM_STEP_NUM_TASKS"}), std::tuple(false, 0, 1));                         // in a batch script
}

}  // namespace
}  // namespace lockstep::core
