// Processes of mpirun that make NCCL's communicators for the groups of a training step, as threads over a fake NCCL.
// mpi_mesh.cpp has the same under mpirun.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "collectives/transports/transport.h"
#include "core/random.h"
#include "core/ranks.h"
#include "testing/collectives/nccl_groups.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 8;

// Returns what each rank has joined. Ranks begin at random times; `change`: what a rank does to its groups before.
using Change = std::function<void(int rank, backends::GroupWorlds& worlds)>;
std::vector<std::vector<ChannelJoin>> join_on_threads(
    const trainer::ChannelMap& map, milliseconds timeout, const Change& change = [](int, backends::GroupWorlds&) {}) {
  core::AbortFlag abort;
  std::vector<std::unique_ptr<transports::LoopbackWorld>> groups;
  for (const backends::Channel& channel : map.channels()) {
    groups.push_back(std::make_unique<transports::LoopbackWorld>(static_cast<int>(channel.size()), 8, timeout, &abort));
  }
  Meetings meetings;
  std::vector<std::vector<ChannelJoin>> joined(kRanks);
  core::run_ranks(core::Sharing::threads, kRanks, abort, [&](int rank) {
    std::vector<std::unique_ptr<transports::Transport>> ends(groups.size());
    for (std::size_t c = 0; c < groups.size(); ++c) {
      if (!backends::is_member(map.channels()[c], rank)) continue;
      ends[c] = groups[c]->endpoint(backends::index_in(map.channels()[c], rank));
    }
    backends::GroupWorlds worlds = backends::group_worlds(ends);
    change(rank, worlds);
    core::Random random(static_cast<std::uint64_t>(rank));
    std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(3000 * random.uniform())));
    NotingNccl nccl(rank, &meetings);
    joined[static_cast<std::size_t>(rank)] = nccl.join_all(worlds, map.names(), rank, timeout);
  });
  return joined;
}

TEST(NcclGroups, EveryProcessBuildsEachGroupWithTheSameMembersInTheSameOrder) {
  for (const std::string& layout : layouts_of_eight()) {
    const trainer::ChannelMap map = channels_of(layout);
    EXPECT_GT(map.channels().size(), 2U) << layout;
    EXPECT_EQ(joining_errors(join_on_threads(map, milliseconds(60'000)), map.channels()), "") << layout;
  }
}

TEST(NcclGroups, TheCheckFindsWhatIsWrong) {
  const trainer::ChannelMap map = channels_of("dp=2,tp=2,pp=2,batch=4");
  const auto good = join_on_threads(map, milliseconds(60'000));
  auto swapped = good;
  std::swap(swapped[3].front(), swapped[3].back());
  EXPECT_NE(joining_errors(swapped, map.channels()), "");
  auto other = good;
  other[5].front().identifier[3] ^= 1;
  EXPECT_NE(joining_errors(other, map.channels()), "");
  auto without = good;
  without[6].pop_back();
  EXPECT_NE(joining_errors(without, map.channels()), "");
  auto turned = good;
  turned[0].front().rank = 1;
  EXPECT_NE(joining_errors(turned, map.channels()), "");
}

// A process that does not come to one of its groups: nobody hangs, and the error says who waited in which group.
TEST(NcclGroups, WhoWaitsForAProcessThatStaysAwayNamesItselfAndTheGroup) {
  const trainer::ChannelMap map = channels_of("dp=2,tp=2,pp=2,batch=4");
  const auto stays_away = [](int rank, backends::GroupWorlds& worlds) {
    if (rank != 5) return;
    for (transports::World*& world : worlds) world = nullptr;
  };
  try {
    join_on_threads(map, milliseconds(200), stays_away);
    FAIL() << "joined";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::timeout);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("rank ")) << text;
    EXPECT_NE(text.find(" group of ranks"), std::string::npos) << text;
    EXPECT_NE(text.find(" 5"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace lockstep
