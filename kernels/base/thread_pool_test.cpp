#include "kernels/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace lockstep::kernels {
namespace {

TEST(ThreadPool, RangesCoverEveryElementOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (std::int64_t count : {0, 1, 5, 64, 1000}) {
      std::vector<int> visits(static_cast<std::size_t>(count), 0);
      pool.for_ranges(count, 16, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_EQ(begin % 16, 0);
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(count), 1)) << threads << " threads";
    }
  }
}

TEST(ThreadPool, PiecesRunOnceEach) {
  ThreadPool pool(3);
  std::vector<int> visits(100, 0);
  for (int repeat = 0; repeat < 200; ++repeat) {
    pool.for_pieces(100, [&](std::int64_t piece, int thread) {
      EXPECT_EQ(piece % 3, thread);
      ++visits[static_cast<std::size_t>(piece)];
    });
  }
  EXPECT_EQ(visits, std::vector<int>(100, 200));
}

TEST(ThreadPool, AnExceptionOfAnyThreadReachesTheCaller) {
  ThreadPool pool(2);
  for (int thrower : {0, 1}) {
    EXPECT_THROW(pool.on_each_thread([thrower](int thread) {
      if (thread == thrower) throw std::runtime_error("no");
    }),
                 std::runtime_error);
  }
  std::atomic<int> calls = 0;
  pool.on_each_thread([&](int) { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST(ThreadPool, ScratchIsOfEachThreadAndAligned) {
  ThreadPool pool(2);
  std::byte* shared = pool.scratch(-1, 100);
  std::vector<std::byte*> own(2);
  pool.on_each_thread([&](int thread) { own[static_cast<std::size_t>(thread)] = pool.scratch(thread, 5000); });
  EXPECT_NE(own[0], own[1]);
  EXPECT_NE(own[0], shared);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(own[1]) % 128, 0U);
  EXPECT_EQ(pool.scratch(0, 4000), own[0]);
}

TEST(ThreadPool, KeepsOneObjectOfAType) {
  struct Kept {
    explicit Kept(int num_threads) : count(num_threads) {}
    int count;
  };
  ThreadPool pool(2);
  EXPECT_EQ(pool.kept<Kept>().count, 2);
  pool.kept<Kept>().count = 7;
  EXPECT_EQ(pool.kept<Kept>().count, 7);
  EXPECT_EQ(ThreadPool(1).kept<Kept>().count, 1);
}

}  // namespace
}  // namespace lockstep::kernels
