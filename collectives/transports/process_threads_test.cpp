// Threads of processes, where the processes are threads themselves, between which messages go by a loopback.
#include "collectives/transports/mpi_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "collectives/transports/transport.h"
#include "core/error.h"
#include "testing/core/thrown.h"

namespace lockstep::transports {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDeadline{10'000};

// Text of the error that each process's run_threads() threw; empty if none.
std::vector<std::string> run_processes(int processes, int threads, milliseconds deadline,
                                       const std::function<void(Transport&)>& body) {
  std::vector<core::AbortFlag> aborts(static_cast<std::size_t>(processes));
  LoopbackWorld world(processes, 0, deadline);
  std::vector<std::string> errors(static_cast<std::size_t>(processes));
  std::vector<std::jthread> running;
  for (int p = 0; p < processes; ++p) {
    running.emplace_back([&, p] {
      std::vector<std::unique_ptr<Transport>> ends;
      for (int t = 0; t < threads; ++t) ends.push_back(world.endpoint(p));
      try {
        run_threads(ends, aborts[static_cast<std::size_t>(p)], deadline, body);
      } catch (const core::Error& error) {
        errors[static_cast<std::size_t>(p)] = error.what();
        world.abort(error.what());
      }
    });
  }
  running.clear();
  return errors;
}

// Every rank sends every rank, itself included, two numbers on two channels; the second is asked for first.
void exchange_with_all(Transport& rank) {
  const int ranks = rank.num_ranks();
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received(static_cast<std::size_t>(2 * ranks), -1);
  for (int i = 0; i < 2 * ranks; ++i) sent.push_back(1000 * rank.rank() + i);
  std::vector<Request> requests;
  const auto part = [](std::vector<std::int64_t>& of, int i) {
    return std::span(of).subspan(static_cast<std::size_t>(i), 1);
  };
  for (int peer = ranks - 1; peer >= 0; --peer) {
    for (const int channel : {1, 0}) {
      requests.push_back(rank.recv(peer, channel, std::as_writable_bytes(part(received, 2 * peer + channel))));
    }
  }
  for (int peer = 0; peer < ranks; ++peer) {
    for (const int channel : {0, 1}) {
      requests.push_back(rank.send(peer, channel, std::as_bytes(part(sent, 2 * peer + channel))));
    }
  }
  for (const Request request : requests) {
    while (!rank.done(request)) rank.idle();
  }
  for (int peer = 0; peer < ranks; ++peer) {
    for (const int channel : {0, 1}) {
      EXPECT_EQ(received[static_cast<std::size_t>(2 * peer + channel)], 1000 * peer + 2 * rank.rank() + channel);
    }
  }
}

TEST(ProcessThreads, RanksAreNumberedByProcessAndMeetAndExchange) {
  for (int processes = 1; processes <= 3; ++processes) {
    for (int threads = 1; threads <= 3; ++threads) {
      std::mutex mutex;
      std::map<int, std::thread::id> ranks;
      std::atomic<int> before{0};
      const auto errors = run_processes(processes, threads, kDeadline, [&](Transport& rank) {
        EXPECT_EQ(rank.num_ranks(), processes * threads);
        {
          const std::lock_guard lock(mutex);
          ranks.emplace(rank.rank(), std::this_thread::get_id());
        }
        ++before;
        rank.barrier();
        EXPECT_EQ(before, processes * threads) << "a barrier waits for all";
        for (int round = 0; round < 3; ++round) {
          const std::vector<int> all = all_gather_value(rank, 10 * rank.rank() + round);
          for (int r = 0; r < rank.num_ranks(); ++r) EXPECT_EQ(all.at(static_cast<std::size_t>(r)), 10 * r + round);
        }
        exchange_with_all(rank);
      });
      EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(processes)));
      ASSERT_EQ(ranks.size(), static_cast<std::size_t>(processes * threads));
      EXPECT_EQ(ranks.rbegin()->first, processes * threads - 1);
    }
  }
}

TEST(ProcessThreads, AFailureOfOneThreadEndsTheOthersLongBeforeTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run_processes(2, 3, kDeadline, [](Transport& rank) {
    if (rank.rank() == 4) throw core::Error(core::Failure::wrong_data, "rank 4 has seen wrong data");
    rank.barrier();
  });
  EXPECT_EQ(errors[1], "rank 4 has seen wrong data");
  EXPECT_NE(errors[0], "") << "it waits for a process that has failed";
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline / 2);
}

TEST(ProcessThreads, AProcessThatDoesNotComeIsNamed) {
  std::atomic<bool> ended{false};
  const auto errors = run_processes(2, 2, milliseconds{200}, [&](Transport& rank) {
    while (rank.rank() >= 2 && !ended) std::this_thread::yield();
    if (rank.rank() >= 2) return;
    try {
      rank.barrier();
    } catch (...) {
      ended = true;
      throw;
    }
  });
  EXPECT_EQ(errors[0], "rank 0 waited at a barrier that these ranks did not reach: rank 1")
      << "numbers of processes here";
}

TEST(ProcessThreads, AThreadThatDoesNotComeIsNamedByItsRankAmongAll) {
  const auto errors = run_processes(2, 2, milliseconds{100}, [&](Transport& rank) {
    if (rank.rank() != 3) return rank.barrier();
    const std::string text = core::error_text([&] {
      while (true) rank.check();
    });
    EXPECT_TRUE(core::has(text, "rank 3"));
  });
  EXPECT_TRUE(core::has(errors[1], "rank 2 waited 1100 ms for rank 3"));
}

}  // namespace
}  // namespace lockstep::transports
