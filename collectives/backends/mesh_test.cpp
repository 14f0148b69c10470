#include "collectives/backends/mesh.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <thread>

#include "collectives/tuning/tuning.h"
#include "core/wait.h"
#include "testing/collectives/mesh_cases.h"
#include "testing/core/thrown.h"

namespace lockstep::backends {
namespace {

using collectives::Kind;
using collectives::Operation;

// Runs work in a thread of its own; a failure ends all ranks.
std::jthread in_thread(MeshRank& mesh, const std::function<void()>& work) {
  return std::jthread([&mesh, work] {
    try {
      work();
    } catch (const core::Error& error) {
      mesh.abort.raise(mesh.messages.rank(), error.failure(), error.what());
    }
  });
}

Operation all_reduce_of(std::int64_t count) {
  Operation operation;
  operation.count = count;
  return operation;
}

TEST(Mesh, CollectivesOfEveryChannelAreExact) {
  for (int ranks : {1, 2, 3, 6}) {  // the next test has 8
    const std::vector<Channel> channels = grid_channels(ranks);
    MeshOptions options;
    options.num_ranks = ranks;
    run_mesh(options, channels, [&](MeshRank& mesh) {
      for (std::size_t c = 0; c < channels.size(); ++c) {
        if (!is_of(channels[c], mesh.messages.rank())) continue;
        for (ChannelCase& channel_case : training_cases(mesh, channels[c], c, "auto")) {
          for (int round = 0; round < 3; ++round) channel_case.run();
        }
      }
      exchange_messages(mesh, 100, 3);
    });
  }
}

// Rows and columns have a thread each; the rank's own thread exchanges messages.
TEST(Mesh, ChannelsAndMessagesRunSideBySide) {
  constexpr int kRanks = 8;
  const std::vector<Channel> channels = grid_channels(kRanks);
  MeshOptions options;
  options.num_ranks = kRanks;
  options.threads_per_rank = 3;
  run_mesh(options, channels, [&](MeshRank& mesh) {
    std::vector<ChannelCase> of_rows;
    std::vector<ChannelCase> of_columns;
    for (std::size_t c = 0; c < 7; ++c) {
      if (!is_of(channels[c], mesh.messages.rank())) continue;
      auto& cases = c < 3 ? of_rows : of_columns;
      for (ChannelCase& channel_case : training_cases(mesh, channels[c], c, "auto"))
        cases.push_back(std::move(channel_case));
    }
    const auto run_all = [](std::vector<ChannelCase>& cases) {
      for (int round = 0; round < 4; ++round) {
        for (ChannelCase& channel_case : cases) channel_case.run();
      }
    };
    {
      const std::jthread rows = in_thread(mesh, [&] { run_all(of_rows); });
      const std::jthread columns = in_thread(mesh, [&] { run_all(of_columns); });
      exchange_messages(mesh, 100'000, 20);
    }
  });
}

// Staged collectives of different sizes alternate: data that a rank left for a slow peer is not overwritten by the next
// call.
TEST(Mesh, ScratchOfOneCallIsNotTheNextOnes) {
  const std::vector<Channel> channels{{0, 1, 2}};
  MeshOptions options;
  options.num_ranks = 3;
  run_mesh(options, channels, [&](MeshRank& mesh) {
    std::vector<ChannelCase> cases;
    for (std::int64_t count : {2000, 600, 1100}) {
      cases.emplace_back(mesh, channels[0], 0, all_reduce_of(count), "one_shot");
    }
    for (int round = 0; round < 2000; ++round) {
      for (ChannelCase& channel_case : cases) channel_case.run();
    }
  });
}

TEST(Mesh, ALargeReductionInPlace) {
  const std::vector<Channel> channels{{0, 1}};
  MeshOptions options;
  options.num_ranks = 2;
  run_mesh(options, channels, [&](MeshRank& mesh) {
    Operation operation = all_reduce_of(std::int64_t{16} << 20);  // 64 MiB
    operation.in_place = true;
    for (const char* algorithm : {"auto", "recursive_doubling"}) {  // needs a copy of its input
      ChannelCase(mesh, channels[0], 0, operation, algorithm).run();
    }
  });
}

TEST(Mesh, AutoGoesByBytesAndByTheTable) {
  const std::vector<Channel> channels{{0, 1}, {0, 1, 2}};
  tuning::Table table;
  table.entries.push_back({"local", Kind::all_reduce, 2, 1 << 20, "ring"});
  const auto chosen = [&](std::int64_t count, const tuning::Table* tuned, std::size_t channel = 0) {
    MeshOptions options;
    options.num_ranks = 3;
    options.tuned = tuned;
    std::string name;
    run_mesh(options, channels, [&](MeshRank& mesh) {
      if (!is_of(channels[channel], mesh.messages.rank())) return;
      const Prepared prepared = mesh.prepare(channel, all_reduce_of(count), "auto");
      EXPECT_EQ(prepared.executor, "direct");
      if (mesh.messages.rank() == 0) name = prepared.algorithm;
    });
    return name;
  };
  EXPECT_EQ(chosen(16, nullptr), "one_shot");
  EXPECT_EQ(chosen(16, nullptr, 1), "two_shot");  // the same bits for all three
  EXPECT_EQ(chosen(1 << 18, nullptr), "two_shot");
  EXPECT_EQ(chosen(1 << 18, &table), "ring");
}

TEST(Mesh, WhatDoesNotExistIsRefusedInOneLine) {
  const std::vector<Channel> channels{{0, 1}};
  MeshOptions options;
  options.num_ranks = 2;
  for (const char* name : {"library", "fastest"}) {
    const core::Error error = core::thrown_by(
        [&] { run_mesh(options, channels, [&](MeshRank& mesh) { mesh.prepare(0, all_reduce_of(4), name); }); });
    EXPECT_EQ(error.failure(), core::Failure::usage);
    EXPECT_TRUE(core::has(error.what(), name));
  }
}

// Ranks 0 and 1 have two channels and run an all-reduce on each at once, and rank 0 sends a message: all of it leaves
// through one port. Emulated time is a lower bound, whatever the machine does: at least the time that the port needs.
TEST(Mesh, APortIsSharedByAllChannelsAndMessages) {
  const std::vector<Channel> channels{{0, 1}, {0, 1}};
  constexpr std::int64_t kCount = 250'000;  // 1 MB; an all-reduce of two ranks moves half of it twice
  MeshOptions options;
  options.num_ranks = 2;
  options.threads_per_rank = 2;
  options.link = transports::LinkSpec{0, 0.02};  // 20 MB/s: 50 ms for 1 MB
  double longest_us = 0;
  run_mesh(options, channels, [&](MeshRank& mesh) {
    ChannelCase all_reduce(mesh, channels[0], 0, all_reduce_of(kCount), "two_shot");
    ChannelCase other(mesh, channels[1], 1, all_reduce_of(kCount), "two_shot");
    std::vector<std::byte> message(1'000'000);
    mesh.messages.barrier();
    const auto start = core::Clock::now();
    {
      const std::jthread first = in_thread(mesh, [&] { all_reduce.run(); });
      const std::jthread second = in_thread(mesh, [&] { other.run(); });
      const int peer = 1 - mesh.messages.rank();
      const auto request =
          mesh.messages.rank() == 0 ? mesh.messages.send(peer, 0, message) : mesh.messages.recv(peer, 0, message);
      while (!mesh.messages.done(request)) mesh.messages.idle();
    }
    mesh.messages.barrier();
    if (mesh.messages.rank() == 0) longest_us = core::us_between(start, core::Clock::now());
  });
  EXPECT_GE(longest_us, 3 * 50'000);
}

TEST(Mesh, AMessageArrivesOneLatencyAfterItHasLeft) {
  MeshOptions options;
  options.num_ranks = 2;
  options.link = transports::LinkSpec{30'000, 0.1};  // 30 ms; 10 ms for 1 MB
  run_mesh(options, {}, [&](MeshRank& mesh) {
    std::vector<std::byte> message(1'000'000);
    const bool sends = mesh.messages.rank() == 0;
    std::int64_t sent_ns = transports::now_ns();
    if (sends) std::memcpy(message.data(), &sent_ns, sizeof sent_ns);
    const auto request = sends ? mesh.messages.send(1, 7, message) : mesh.messages.recv(0, 7, message);
    while (!mesh.messages.done(request)) mesh.messages.idle();
    std::memcpy(&sent_ns, message.data(), sizeof sent_ns);
    EXPECT_GE(transports::now_ns() - sent_ns, sends ? 10'000'000 : 40'000'000);
  });
}

// All others wait, each in a different way: in collectives of two channels, and for a message.
TEST(Mesh, ARankThatThrowsEndsAllAndIsNamed) {
  const std::vector<Channel> channels = grid_channels(8);
  MeshOptions options;
  options.num_ranks = 8;
  options.threads_per_rank = 2;
  const auto start = core::Clock::now();
  const core::Error error = core::thrown_by([&] {
    run_mesh(options, channels, [&](MeshRank& mesh) {
      const int rank = mesh.messages.rank();
      const std::size_t row = rank < 4 ? 1 : 2;
      ChannelCase of_row(mesh, channels[row], row, all_reduce_of(5000), "auto");
      ChannelCase of_world(mesh, channels[0], 0, all_reduce_of(50'000), "ring");
      of_row.run();
      of_world.run();
      if (rank == 5) throw core::Error(core::Failure::wrong_data, "the weights are lost");
      const std::jthread row_thread = in_thread(mesh, [&] {
        while (true) of_row.run();
      });
      if (rank == 0) of_world.run();
      std::vector<std::byte> message(8);
      const auto request = mesh.messages.recv(5, 0, message);
      while (!mesh.messages.done(request)) {
        if (mesh.messages.rank() == 2) mesh.messages.barrier();
        mesh.messages.idle();
      }
    });
  });
  EXPECT_EQ(std::string(error.what()), "rank 5: the weights are lost");
  EXPECT_EQ(error.failure(), core::Failure::wrong_data);
  EXPECT_LT(core::us_between(start, core::Clock::now()), 20e6);  // well before the deadline of 60 s
}

// Rank 6 stays away from the column {2, 6}. Rank 2 waits for it there; rank 2's row waits for rank 2, longer.
TEST(Mesh, ARankThatDoesNotComeIsNamedByItsNumberInTheMesh) {
  const std::vector<Channel> channels = grid_channels(8);
  MeshOptions options;
  options.num_ranks = 8;
  options.timeout = std::chrono::milliseconds(1500);
  const core::Error error = core::thrown_by([&] {
    run_mesh(options, channels, [&](MeshRank& mesh) {
      const int rank = mesh.messages.rank();
      mesh.messages.barrier();
      while (rank == 6) mesh.messages.idle();  // until another rank gives up
      if (rank >= 4) return;
      ChannelCase of_row(mesh, channels[1], 1, all_reduce_of(5000), "auto");
      if (rank == 2) {
        ChannelCase of_column(mesh, channels[5], 5, all_reduce_of(100), "auto");
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        of_column.run();
      }
      of_row.run();
    });
  });
  const std::string text = error.what();
  EXPECT_EQ(error.failure(), core::Failure::timeout);
  EXPECT_TRUE(core::has(text, "waited 1500 ms for rank 2 ("));
  EXPECT_TRUE(core::has(text, ", which waits for rank 6, and rank 6 does not answer"));
}

TEST(Mesh, ABarrierNamesWhoDidNotCome) {
  MeshOptions options;
  options.num_ranks = 3;
  options.timeout = std::chrono::milliseconds(1000);
  const core::Error error = core::thrown_by([&] {
    run_mesh(options, {}, [](MeshRank& mesh) {
      if (mesh.messages.rank() != 1) mesh.messages.barrier();
    });
  });
  EXPECT_EQ(error.failure(), core::Failure::timeout);
  EXPECT_TRUE(core::has(error.what(), "did not reach: rank 1"));
}

}  // namespace
}  // namespace lockstep::backends
