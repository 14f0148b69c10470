// Plans over an in-memory stream with NCCL's semantics: work that ranks enqueue is recorded, and then run in random
// orders.
#include "collectives/executors/executors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/device.h"
#include "kernels/reduce/reduce.h"
#include "testing/collectives/executor_cases.h"

namespace lockstep::executors {
namespace {

using collectives::Kind;
using collectives::Operation;
using transports::PeerBytes;

// A piece of work on a stream: a combination, or a group of messages.
struct Piece {
  bool is_group;
  Combination combination;
  std::vector<PeerBytes> sends;
  std::vector<PeerBytes> receives;
};

class Recorder final : public GroupStream {
 public:
  void combine(const Combination& combination) override { pieces.push_back({false, combination, {}, {}}); }
  void exchange(std::span<const PeerBytes> sends, std::span<const PeerBytes> receives) override {
    pieces.push_back({true, {}, {sends.begin(), sends.end()}, {receives.begin(), receives.end()}});
  }
  std::vector<Piece> pieces;
};

void combine_now(const Combination& combination) {
  const std::array<void*, 1> destinations{combination.to};
  const std::array<const void*, 2> sources{combination.a, combination.b};
  kernels::reduce({.dtype = combination.dtype,
                   .op = combination.op,
                   .destinations = destinations,
                   .sources = std::span(sources).first(combination.b == nullptr ? 1 : 2),
                   .count = combination.count,
                   .average_over = combination.average_over});
}

// The ranks' streams, run concurrently. Nothing is buffered: a message moves at any time while both ends are in their
// groups; a group is done when all its messages have moved. The next event is chosen at random among those that can
// happen.
class Streams {
 public:
  Streams(std::vector<Recorder>& ranks, std::uint64_t seed) : ranks_(ranks), next_(ranks.size(), 0), random_(seed) {}

  // Returns "done", or the error text.
  std::string run() {
    for (;;) {
      skip_done_groups();
      std::vector<Event> possible;
      bool left = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        left = left || next_[rank] < ranks_[rank].pieces.size();
        add_events(static_cast<int>(rank), possible);
      }
      if (!left) return "done";
      if (possible.empty()) return "stuck";
      const Event event = possible[random_() % possible.size()];
      if (!happen(event)) return "a message of another size than its receive";
    }
  }

 private:
  struct Event {
    int rank;  // the sender of a message
    int peer;  // -1: a combination
  };

  Piece* current(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return next_[r] < ranks_[r].pieces.size() ? &ranks_[r].pieces[next_[r]] : nullptr;
  }
  static auto find(std::vector<PeerBytes>& messages, int peer) {
    return std::find_if(messages.begin(), messages.end(), [&](const PeerBytes& m) { return m.peer == peer; });
  }

  void skip_done_groups() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Piece* piece = current(static_cast<int>(rank));
           piece != nullptr && piece->is_group && piece->sends.empty() && piece->receives.empty();
           piece = current(static_cast<int>(rank))) {
        ++next_[rank];
      }
    }
  }

  void add_events(int rank, std::vector<Event>& events) {
    Piece* mine = current(rank);
    if (mine == nullptr) return;
    if (!mine->is_group) return events.push_back({rank, -1});
    for (int peer = 0; peer < static_cast<int>(ranks_.size()); ++peer) {
      Piece* theirs = current(peer);
      if (theirs == nullptr || find(mine->sends, peer) == mine->sends.end()) continue;
      if (find(theirs->receives, rank) != theirs->receives.end()) events.push_back({rank, peer});
    }
  }

  bool happen(const Event& event) {
    Piece* mine = current(event.rank);
    if (event.peer < 0) {
      combine_now(mine->combination);
      ++next_[static_cast<std::size_t>(event.rank)];
      return true;
    }
    Piece* theirs = current(event.peer);
    const auto send = find(mine->sends, event.peer);
    const auto receive = find(theirs->receives, event.rank);
    if (send->size_bytes != receive->size_bytes) return false;
    std::memcpy(receive->memory, send->memory, send->size_bytes);
    mine->sends.erase(send);
    theirs->receives.erase(receive);
    return true;
  }

  std::vector<Recorder>& ranks_;
  std::vector<std::size_t> next_;  // [rank]
  std::mt19937_64 random_;
};

constexpr std::uint64_t kCalls = 2;  // in a row, so that ranks are in different calls

// Work that all ranks enqueue in several calls, and its memory.
struct Recorded {
  Recorded(const plan::Plan& plan, const Operation& operation)
      : device(core::make_cpu_device()),
        verifier(collectives::verifier_for_tests(operation, plan.num_ranks)),
        ranks(at(plan.num_ranks)) {
    for (int rank = 0; rank < plan.num_ranks; ++rank) {
      collectives.push_back(make_grouped_collective(plan, operation, rank, *device, ranks[at(rank)]));
      for (std::uint64_t call = 0; call < kCalls; ++call) {
        RankBuffers& memory = buffers.emplace_back(operation, plan.num_ranks, rank);
        verifier.fill_poison(rank, call, memory.output());
        verifier.fill_input(rank, call, memory.input());
        collectives.back()->run(memory.input(), memory.output());
      }
    }
  }

  std::int64_t count_wrong() {
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      wrong += verifier.count_wrong(static_cast<int>(i / kCalls), i % kCalls, buffers[i].output());
    }
    return wrong;
  }

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  std::unique_ptr<core::Device> device;
  collectives::Verifier verifier;
  std::vector<Recorder> ranks;
  std::vector<std::unique_ptr<collectives::Collective>> collectives;
  std::vector<RankBuffers> buffers;  // [rank * kCalls + call]
};

void expect_exact(const plan::Plan& plan, const Operation& operation, std::uint64_t seed) {
  Recorded recorded(plan, operation);
  EXPECT_EQ(Streams(recorded.ranks, seed).run(), "done") << describe(plan, operation) << ", seed " << seed;
  EXPECT_EQ(recorded.count_wrong(), 0) << describe(plan, operation) << ", seed " << seed;
}

class GroupedExecutor : public testing::TestWithParam<int> {};

TEST_P(GroupedExecutor, EveryAlgorithmIsExactInAnyOrder) {
  std::uint64_t seed = 0;
  for_each_message_case(GetParam(), [&](const auto& plan, const auto& operation, const auto& /*options*/) {
    expect_exact(plan, operation, ++seed);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupedExecutor, testing::Range(1, 9));

TEST(GroupedExecutorTypes, EveryTypeAndOperationIsExact) {
  for_each_message_type(
      3, [](const auto& plan, const auto& operation, const auto& /*options*/) { expect_exact(plan, operation, 1); });
}

std::vector<Piece> groups_of(const Recorder& rank) {
  std::vector<Piece> groups;
  std::copy_if(rank.pieces.begin(), rank.pieces.end(), std::back_inserter(groups),
               [](const Piece& piece) { return piece.is_group; });
  return groups;
}

plan::Plan plan_of(Kind kind, const std::string& algorithm, int num_ranks) {
  return make_plan(algorithms::parse_choice(kind, algorithm), num_ranks, 0);
}

// A ring has 2(n-1) steps; each is one group: the message sent and the message received.
TEST(GroupedExecutorGroups, AStepOfARingIsAGroup) {
  const Recorded recorded(plan_of(Kind::all_reduce, "ring", 4), make_operation(Kind::all_reduce, 4, 1000));
  for (const Recorder& rank : recorded.ranks) {
    const std::vector<Piece> groups = groups_of(rank);
    EXPECT_EQ(groups.size(), kCalls * 6);
    for (const Piece& group : groups) {
      EXPECT_EQ(group.sends.size(), 1U);
      EXPECT_EQ(group.receives.size(), 1U);
    }
  }
}

// A rank's next call enqueues the same work again, as stream capture requires.
TEST(GroupedExecutorGroups, EveryCallQueuesTheSame) {
  const Recorded recorded(plan_of(Kind::reduce_scatter, "ring", 5), make_operation(Kind::reduce_scatter, 5, 77));
  for (const Recorder& rank : recorded.ranks) {
    const std::size_t pieces = rank.pieces.size() / kCalls;
    ASSERT_EQ(rank.pieces.size() % kCalls, 0U);
    for (std::size_t i = 0; i < pieces; ++i) {
      EXPECT_EQ(rank.pieces[i].is_group, rank.pieces[i + pieces].is_group);
      EXPECT_EQ(rank.pieces[i].sends.size(), rank.pieces[i + pieces].sends.size());
      EXPECT_EQ(rank.pieces[i].receives.size(), rank.pieces[i + pieces].receives.size());
    }
  }
}

// Two ranks overwrite the data that they send, in one group: one copies first.
TEST(GroupedExecutorGroups, SwapsInPlace) {
  plan::PlanBuilder builder(Kind::send_recv, 2, 0, 1);
  for (int rank : {0, 1}) {
    builder.send(rank, 1 - rank, plan::input(0));
    builder.recv(rank, 1 - rank, plan::output(0));
  }
  Operation operation = make_operation(Kind::send_recv, 2, 5000);
  operation.in_place = true;
  const plan::Plan plan = builder.finish("swap");
  for (std::uint64_t seed : {1U, 2U, 3U, 4U}) expect_exact(plan, operation, seed);
}

// The simulated streams hang where NCCL's would, and detect mismatched messages.
TEST(GroupedExecutorStreams, TellWhatIsWrong) {
  std::array<std::byte, 8> memory{};
  const std::vector<PeerBytes> none;
  const auto message = [&](int peer, std::size_t bytes) {
    return std::vector<PeerBytes>{{.peer = peer, .memory = memory.data(), .size_bytes = bytes}};
  };
  std::vector<Recorder> crossed(2);
  for (int rank : {0, 1}) {
    crossed[static_cast<std::size_t>(rank)].exchange(message(1 - rank, 8), none);
    crossed[static_cast<std::size_t>(rank)].exchange(none, message(1 - rank, 8));
  }
  EXPECT_EQ(Streams(crossed, 1).run(), "stuck");
  std::vector<Recorder> uneven(2);
  uneven[0].exchange(message(1, 8), none);
  uneven[1].exchange(none, message(0, 4));
  EXPECT_EQ(Streams(uneven, 1).run(), "a message of another size than its receive");
}

}  // namespace
}  // namespace lockstep::executors
