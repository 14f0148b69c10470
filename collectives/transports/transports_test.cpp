#include "collectives/transports/transport.h"

#include <algorithm>
#include <array>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/transports/mpi_transport.h"
#include "collectives/transports/paced_link.h"
#include "core/error.h"
#include "core/wait.h"
#include "testing/core/thrown.h"

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
  EXPECT_EQ(core::thrown_by([&] { transport->barrier(); }).failure(), core::Failure::timeout);
  world.abort("rank 1: disk on fire");
  const core::Error error = core::thrown_by([&] { transport->idle(); });
  EXPECT_EQ(error.failure(), core::Failure::rank_lost);
  EXPECT_STREQ(error.what(), "rank 1: disk on fire");
}

constexpr LinkSpec kOneByteANanosecond{0, 1};

class Ports {
 public:
  explicit Ports(std::size_t ranks, LinkSpec spec = kOneByteANanosecond) : ports_(ranks), table_(spec, ports_.data()) {}
  std::int64_t book(int from, int to, std::int64_t bytes, std::int64_t ready_ns) {
    return table_.book(from, to, bytes, ready_ns);
  }

 private:
  std::vector<LinkTable::Port> ports_;
  LinkTable table_;
};

TEST(LinkTable, AMessageArrivesALatencyAfterItHasLeft) {
  Ports ports(2, {2, 0.5});
  EXPECT_EQ(ports.book(0, 1, 1000, 50), 50 + 2000 + 2000);
}

TEST(LinkTable, WithoutABandwidthNothingWaits) {
  Ports ports(2, {1, 0});
  EXPECT_EQ(ports.book(0, 1, 1 << 30, 7), 1007);
  EXPECT_EQ(ports.book(0, 1, 1 << 30, 7), 1007);
}

TEST(LinkTable, PortsAreFullDuplexAndCarryOneMessageAtATimeEachWay) {
  Ports ports(3);
  EXPECT_EQ(ports.book(0, 1, 100, 0), 100);
  EXPECT_EQ(ports.book(1, 0, 100, 0), 100);
  EXPECT_EQ(ports.book(0, 2, 100, 0), 200) << "the sender's way out was busy";
  EXPECT_EQ(ports.book(2, 1, 100, 0), 200) << "the receiver's way in was busy";
}

TEST(LinkTable, AMessageBookedLateFillsTheGapThatWasFreeWhenItWasReady) {
  Ports ports(3);
  EXPECT_EQ(ports.book(0, 1, 100, 1000), 1100);
  EXPECT_EQ(ports.book(0, 1, 100, 200), 300) << "ready before the other, booked after it";
  EXPECT_EQ(ports.book(2, 1, 700, 0), 800) << "in two pieces: from 0 to 200 and from 300 to 800";
  EXPECT_EQ(ports.book(2, 1, 201, 0), 1101) << "one byte more than fits before the first";
}

TEST(LinkTable, AGapMustBeFreeOnBothSides) {
  Ports ports(4);
  ports.book(0, 3, 100, 100);  // rank 0's outgoing side is busy from 100 to 200
  ports.book(3, 1, 100, 0);    // rank 1's incoming side from 0 to 100
  ports.book(2, 1, 100, 250);  // and from 250 to 350
  EXPECT_EQ(ports.book(0, 1, 60, 0), 360) << "from 200 to 250 and from 350 on";
  EXPECT_EQ(ports.book(0, 1, 50, 0), 410);
}

// All to all, every message ready at once, booked in a random order: the ports are never idle for long.
TEST(LinkTable, BandwidthIsKeptInAnyOrderOfBooking) {
  constexpr int kRanks = 8;
  constexpr int kRounds = 64;
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<std::pair<int, int>> messages;
    for (int from = 0; from < kRanks; ++from) {
      for (int to = 0; to < kRanks; ++to) {
        if (from != to) messages.insert(messages.end(), kRounds, {from, to});
      }
    }
    std::shuffle(messages.begin(), messages.end(), random);
    Ports ports(kRanks);
    std::int64_t end = 0;
    for (const auto& [from, to] : messages) end = std::max(end, ports.book(from, to, 100, 0));
    const std::int64_t bound = std::int64_t{kRanks - 1} * kRounds * 100;
    EXPECT_GE(end, bound);
    EXPECT_LE(end, bound + bound / 10) << "trial " << trial;
  }
}

// Ranks arrive at slightly different times: gaps are no longer than a message, and are used.
TEST(LinkTable, GapsShorterThanAMessageAreUsed) {
  constexpr int kRanks = 4;
  constexpr int kRounds = 32;
  Ports ports(kRanks);
  std::int64_t end = 0;
  for (int from = 0; from < kRanks; ++from) {
    for (int round = 0; round < kRounds; ++round) {
      for (int hop = 1; hop < kRanks; ++hop) {
        end = std::max(end, ports.book(from, (from + hop) % kRanks, 1000, 370 * from));
      }
    }
  }
  EXPECT_LE(end, (kRanks - 1) * kRounds * 1000 + 10'000);
}

struct Booked {
  int from, to;
  std::int64_t bytes, ready, end;
};

// Messages that are ready at `a` or later and have left by `b` have to fit between them: for all a and b.
void expect_bandwidth_kept(std::vector<Booked> booked, int Booked::*side, int port, const std::string& of) {
  std::erase_if(booked, [&](const Booked& b) { return b.*side != port; });
  std::sort(booked.begin(), booked.end(), [](const Booked& a, const Booked& b) { return a.end < b.end; });
  for (const Booked& first : booked) {
    std::int64_t bytes = 0;
    for (const Booked& b : booked) {
      if (b.ready < first.ready) continue;
      bytes += b.bytes;
      ASSERT_LE(bytes, b.end - first.ready) << of << ", port " << port;
    }
  }
}

// Holds also if a port has more busy intervals than it remembers.
TEST(LinkTable, ThePortsBandwidthIsNeverExceeded) {
  constexpr int kRanks = 4;
  for (unsigned seed = 1; seed <= 30; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    Ports ports(kRanks);
    std::vector<Booked> booked;
    const int span = seed % 2 == 0 ? 50'000 : 1'000'000;
    for (int i = 0; i < 2000; ++i) {
      const int from = below(kRanks);
      const int to = (from + 1 + below(kRanks - 1)) % kRanks;
      const std::int64_t bytes = 1 + below(200);
      const std::int64_t ready = below(span);
      booked.push_back({from, to, bytes, ready, ports.book(from, to, bytes, ready)});
    }
    const std::string of = "seed " + std::to_string(seed);
    for (int port = 0; port < kRanks; ++port) {
      expect_bandwidth_kept(booked, &Booked::from, port, of + ", out");
      expect_bandwidth_kept(booked, &Booked::to, port, of + ", in");
    }
  }
}

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
