#include "collectives/transports/loopback.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "core/error.h"

namespace lockstep::transports {
namespace {

using Bytes = std::array<std::byte, 4>;

Bytes bytes(int value) {
  Bytes result{};
  result.fill(static_cast<std::byte>(value));
  return result;
}

TEST(Loopback, MessagesOfAChannelKeepTheirOrder) {
  LoopbackWorld world(2, 1, std::chrono::seconds(1));
  const auto a = world.endpoint(0);
  const auto b = world.endpoint(1);
  const std::array<Bytes, 3> sent{bytes(1), bytes(2), bytes(3)};
  std::array<Bytes, 3> got{};
  const Request other = a->send(1, 9, sent[2]);
  const Request first = a->send(1, 5, sent[0]);
  const Request second = a->send(1, 5, sent[1]);
  const Request take_first = b->recv(0, 5, got[0]);
  const Request take_second = b->recv(0, 5, got[1]);
  const Request take_other = b->recv(0, 9, got[2]);
  for (Request request : {first, second, other}) EXPECT_TRUE(a->done(request));
  for (Request request : {take_first, take_second, take_other}) EXPECT_TRUE(b->done(request));
  EXPECT_EQ(got, sent);
  EXPECT_THROW(a->done(first), core::Error);  // spent
}

TEST(Loopback, CapacityDecidesWhenASendIsDone) {
  for (int capacity : {0, 1, 3}) {
    LoopbackWorld world(2, capacity, std::chrono::seconds(1));
    const auto a = world.endpoint(0);
    const auto b = world.endpoint(1);
    const Bytes message = bytes(7);
    std::vector<Request> sends;
    for (int i = 0; i < 4; ++i) sends.push_back(a->send(1, 0, message));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(a->done(sends[static_cast<std::size_t>(i)]), i < capacity) << capacity;
    Bytes got{};
    b->recv(0, 0, got);  // makes room for one more
    EXPECT_TRUE(a->done(sends[static_cast<std::size_t>(capacity)]));
    EXPECT_EQ(got, message);
  }
}

TEST(Loopback, AnAbandonedRankIsNotTouched) {
  LoopbackWorld world(2, 0, std::chrono::seconds(1));
  const auto a = world.endpoint(0);
  const auto b = world.endpoint(1);
  Bytes posted = bytes(1);
  Bytes got = bytes(2);
  const Bytes sent = bytes(3);
  b->recv(0, 0, posted);
  b->send(0, 0, posted);
  b->abandon();
  const Request send = a->send(1, 0, sent);
  const Request recv = a->recv(1, 0, got);
  EXPECT_FALSE(a->done(send));
  EXPECT_FALSE(a->done(recv));
  EXPECT_EQ(posted, bytes(1));
  EXPECT_EQ(got, bytes(2));
}

TEST(Loopback, SizesThatDifferAreABug) {
  LoopbackWorld world(2, 1, std::chrono::seconds(1));
  const auto a = world.endpoint(0);
  const auto b = world.endpoint(1);
  std::array<std::byte, 3> small{};
  a->send(1, 0, bytes(1));
  EXPECT_THROW(b->recv(0, 0, small), core::Error);
}

TEST(Loopback, GathersFromAll) {
  constexpr int kRanks = 5;
  LoopbackWorld world(kRanks, 1, std::chrono::seconds(10));
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&world, rank] {
      const auto transport = world.endpoint(rank);
      for (int round = 0; round < 20; ++round) {
        const std::vector<int> all = all_gather_value(*transport, 100 * round + rank);
        for (int r = 0; r < kRanks; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], 100 * round + r);
        transport->barrier();
      }
    });
  }
}

TEST(Loopback, WaitsHaveADeadlineAndSeeAnAbort) {
  LoopbackWorld world(2, 1, std::chrono::milliseconds(50));
  const auto transport = world.endpoint(0);
  try {
    transport->barrier();
    FAIL() << "nobody else came";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::timeout);
  }
  world.abort("rank 1: disk on fire");
  try {
    transport->idle();
    FAIL() << "was aborted";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::rank_lost);
    EXPECT_STREQ(error.what(), "rank 1: disk on fire");
  }
}

}  // namespace
}  // namespace lockstep::transports
