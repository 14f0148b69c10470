#include "testing/emulated_cuda/emulated_threads.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/error.h"

namespace lockstep::kernels::emulated {
namespace {

constexpr int kThreads = 64;

// Returns the sum that the last thread reads after all have written their number, with or without a barrier in between.
int sum_seen(std::uint64_t seed, bool with_barrier) {
  Threads threads;
  core::Random random(seed);
  std::vector<int> written(kThreads);
  int sum = 0;
  threads.run(kThreads, random, [&](int t) {
    written.at(static_cast<std::size_t>(t)) = t;
    if (with_barrier) threads.meet_block();
    if (t == kThreads - 1) sum = std::accumulate(written.begin(), written.end(), 0);
  });
  return sum;
}

TEST(EmulatedThreads, BarrierWaitsForAllAndItsAbsenceShows) {
  std::set<int> without;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(sum_seen(seed, true), kThreads * (kThreads - 1) / 2) << "seed " << seed;
    without.insert(sum_seen(seed, false));
  }
  EXPECT_GT(without.size(), 10U) << "the order of threads must follow the seed";
}

TEST(EmulatedThreads, ExchangeGivesWhatEachLaneOfTheWarpBrought) {
  Threads threads;
  core::Random random(3);
  int wrong = 0;
  threads.run(kThreads, random, [&](int t) {
    for (std::uint32_t turn = 0; turn < 5; ++turn) {
      const auto& words = threads.exchange({static_cast<std::uint32_t>(t), turn});
      for (int lane = 0; lane < Threads::kWarp; ++lane) {
        const auto other = static_cast<std::uint32_t>(t / Threads::kWarp * Threads::kWarp + lane);
        const Threads::Words& word = words.at(static_cast<std::size_t>(lane));
        if (word[0] != other || word[1] != turn) ++wrong;
      }
      if (threads.current() != t) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(EmulatedThreads, WaitingForEverIsAnErrorAndSoIsWhatAThreadThrows) {
  Threads threads;
  core::Random random(4);
  EXPECT_THROW(threads.run(kThreads, random,
                           [&](int t) {
                             if (t != 5) threads.meet_block();
                           }),
               core::Error);
  EXPECT_THROW(threads.run(kThreads, random,
                           [](int t) {
                             if (t == 7) throw std::runtime_error("seven");
                           }),
               std::runtime_error);
  int runs = 0;
  threads.run(2, random, [&](int) { ++runs; });
  EXPECT_EQ(runs, 2) << "it goes on after an error";
}

}  // namespace
}  // namespace lockstep::kernels::emulated
