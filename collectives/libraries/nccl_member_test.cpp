// How communicators are waited for, and buffers registered with them, tested over a fake of NCCL's calls.
#include "collectives/libraries/nccl_member.h"

#include <gtest/gtest.h>

#include <future>

#include "collectives/libraries/nccl_library.h"
#include "collectives/transports/transport.h"
#include "core/device.h"
#include "core/device_cuda.h"
#include "core/error.h"
#include "testing/collectives/fake_nccl.h"
#include "testing/core/thrown.h"

namespace lockstep::libraries {
namespace {

using core::Error;
using core::Failure;
using core::thrown_by;
using std::chrono::milliseconds;
using Calls = std::vector<std::string>;

NcclCaller caller(milliseconds timeout = milliseconds{10'000}) {
  return {.rank = 2, .device = 1, .timeout = timeout};
}

NcclMemberPtr joined(const FakeNccl& nccl, const NcclCaller& at) {
  return join_members(nccl, at, 4, 2, {});
}

TEST(NcclMember, IsReadyWhenNcclIsNoLongerInProgress) {
  FakeNccl nccl;
  nccl.call_result = kNcclInProgress;
  nccl.states = {kNcclInProgress, kNcclInProgress, kNcclInProgress, kNcclSuccess};
  const NcclMemberPtr member = joined(nccl, caller());
  EXPECT_EQ(nccl.states.size(), 1u) << "all states but the last were seen";
  EXPECT_FALSE(member->broken);
  EXPECT_EQ(nccl.calls(), (Calls{"join 1"}));
}

TEST(NcclMember, AtTheDeadlineItIsAborted) {
  FakeNccl nccl;
  nccl.call_result = kNcclInProgress;
  nccl.states = {kNcclInProgress};
  const Error error = thrown_by([&] { joined(nccl, caller(milliseconds{30})); });
  EXPECT_EQ(error.failure(), Failure::timeout);
  EXPECT_STREQ(error.what(),
               "rank 2 (device 1): ncclCommInitRankConfig of 4 ranks took more than 0.03 s: socket 3 was closed");
  EXPECT_EQ(nccl.calls(), (Calls{"join 1", "abort 1"}));
}

TEST(NcclMember, OfSeveralGroupsAnErrorNamesTheOne) {
  FakeNccl nccl;
  nccl.call_result = kNcclInProgress;
  nccl.states = {kNcclInProgress};
  NcclCaller at = caller(milliseconds{30});
  at.group = "data group of ranks 0 2 4 6 (reduce)";
  EXPECT_STREQ(thrown_by([&] { joined(nccl, at); }).what(),
               "rank 2 (device 1), data group of ranks 0 2 4 6 (reduce): ncclCommInitRankConfig of 4 ranks took more "
               "than 0.03 s: socket 3 was closed");
}

// A world of one, as the calls are.
TEST(NcclMember, AWorldJoinsByTheIdentifierOfItsFirstRank) {
  FakeNccl nccl;
  transports::LoopbackWorld world(1, 1, std::chrono::seconds(10));
  const auto end = world.endpoint(0);
  NcclCaller at = caller();
  const NcclGpu gpu{.uuid = {}, .num_multiprocessors = 132, .sharing = {.version_code = 22809, .enabled = false}};
  EXPECT_EQ(join_world(nccl, at, *end, gpu)->num_ranks, 1);
  EXPECT_EQ(at.config.max_ctas, std::nullopt) << "the GPU is the rank's alone";
  nccl.call_result = FakeNccl::kSystemError;
  EXPECT_STREQ(thrown_by([&] { join_world(nccl, at, *end, gpu); }).what(),
               "rank 2 (device 1): ncclGetUniqueId of rank 0 failed: result 2: socket 3 was closed");
}

TEST(NcclMember, WhatTheLibraryDoesNotHaveIsRefusedBeforeAnythingIsMade) {
  FakeNccl nccl;
  transports::LoopbackWorld world(1, 1, std::chrono::seconds(10));
  const auto end = world.endpoint(0);
  NcclCaller at = caller();
  at.config.cta_policy = 2;
  at.registration = NcclRegistration::symmetric;
  nccl.version = 22703;
  const Error error = thrown_by([&] { join_world(nccl, at, *end, {}); });
  EXPECT_EQ(error.failure(), Failure::usage);
  EXPECT_STREQ(error.what(), "-x 2 needs NCCL 2.28; this one is 2.27.3");
  EXPECT_EQ(nccl.calls(), Calls{});
  nccl.version = 22800;
  join_world(nccl, at, *end, {});
  EXPECT_EQ(nccl.joined().at(0).config.cta_policy, 2);
}

TEST(NcclMember, WhatFailsLaterIsAbortedAndToldWithNcclsWords) {
  FakeNccl nccl;
  nccl.call_result = kNcclInProgress;
  nccl.states = {kNcclInProgress, FakeNccl::kSystemError};
  const Error error = thrown_by([&] { joined(nccl, caller()); });
  EXPECT_EQ(error.failure(), Failure::nccl);
  EXPECT_STREQ(error.what(), "rank 2 (device 1): ncclCommInitRankConfig failed: result 2: socket 3 was closed");
  EXPECT_EQ(nccl.calls(), (Calls{"join 1", "abort 1"}));
}

TEST(NcclMember, ARemoteErrorIsALostRank) {
  FakeNccl nccl;
  nccl.words = "";
  const Error error = nccl_error(nccl, caller(), kNcclRemoteError, "NCCL's all_reduce", nullptr);
  EXPECT_EQ(error.failure(), Failure::rank_lost);
  EXPECT_STREQ(error.what(), "rank 2 (device 1): NCCL's all_reduce failed: result 6");
}

TEST(NcclMember, APeersFailureEndsTheWaitLongBeforeTheDeadline) {
  FakeNccl nccl;
  nccl.call_result = kNcclInProgress;
  nccl.states = {kNcclInProgress};
  NcclCaller at = caller();
  at.check_peers = [] { throw Error(Failure::rank_lost, "rank 3 has gone"); };
  EXPECT_STREQ(thrown_by([&] { joined(nccl, at); }).what(), "rank 3 has gone");
  EXPECT_EQ(nccl.calls(), (Calls{"join 1", "abort 1"}));
}

TEST(NcclMember, ACallThatStaysInNcclIsLeftBehind) {
  const FakeNccl nccl;
  auto release = std::make_shared<std::promise<void>>();
  auto done = std::make_shared<std::promise<void>>();
  const NcclMemberPtr member = joined(nccl, caller(milliseconds{30}));
  const Error error = thrown_by([&] {
    call_in_time(member, "the first NCCL's all_reduce", [release, done] {
      release->get_future().wait();
      done->set_value();
    });
  });
  EXPECT_EQ(error.failure(), Failure::timeout);
  EXPECT_TRUE(member->broken);
  {
    NcclMembers all;
    all.add(member);
  }
  EXPECT_EQ(nccl.calls(), (Calls{"join 1"})) << "NCCL is not asked again while a call is in it";
  release->set_value();
  done->get_future().wait();
}

// Like NCCL's: success is reported at once, and the child exists only when the parent has settled.
TEST(NcclMember, ASplitThatSaysSuccessIsWaitedForAllTheSame) {
  FakeNccl nccl;
  const NcclMemberPtr parent = joined(nccl, caller());
  nccl.states = {kNcclInProgress, kNcclInProgress, kNcclSuccess};
  const NcclMemberPtr child = split_members(parent, 0, 2, 1);
  ASSERT_NE(child, nullptr);
  EXPECT_NE(child->communicator, nullptr);
  EXPECT_EQ(nccl.states.size(), 1u);
}

TEST(NcclMember, BothHaveAsManyBlocksAsTheirPlaceAllows) {
  const FakeNccl nccl;
  NcclCaller shared = caller();
  shared.config.max_ctas = 12;
  split_members(joined(nccl, shared), 0, 2, 1);
  EXPECT_EQ(nccl.calls(), (Calls{"join with 12 blocks 1", "split with 12 blocks 1"}));
}

TEST(NcclMember, SplitsWaitForTheParentAndThenForThemselves) {
  FakeNccl nccl;
  const NcclMemberPtr parent = joined(nccl, caller());
  nccl.call_result = kNcclInProgress;
  nccl.states = {kNcclInProgress, kNcclSuccess, kNcclInProgress, kNcclSuccess};
  const NcclMemberPtr child = split_members(parent, 0, 2, 1);
  ASSERT_NE(child, nullptr);
  EXPECT_EQ(nccl.states.size(), 1u);
  EXPECT_EQ(child->rank, 1);
  EXPECT_NE(child->communicator, parent->communicator);
  EXPECT_EQ(split_members(parent, -1, 0, 0), nullptr);
}

TEST(NcclMembers, AreDestroyedChildrenFirst) {
  const FakeNccl nccl;
  {
    NcclMembers all;
    const NcclMemberPtr parent = joined(nccl, caller());
    all.add(parent);
    all.add(split_members(parent, 0, 4, 2));
  }
  EXPECT_EQ(nccl.calls(), (Calls{"join 1", "split 1", "destroy 2", "destroy 1"}));
}

TEST(NcclMembers, AnAsynchronousErrorOfOneAbortsEachOnce) {
  FakeNccl nccl;
  {
    NcclMembers all;
    for (int i = 0; i < 3; ++i) all.add(joined(nccl, caller()));
    nccl.states = {kNcclSuccess, FakeNccl::kSystemError};
    const Error error = thrown_by([&] { all.check(core::Deadline::after(milliseconds{10'000})); });
    EXPECT_STREQ(error.what(), "rank 2 (device 1): NCCL's work failed: result 2: socket 3 was closed");
    all.abort();
  }
  for (const char* call : {"abort 1", "abort 2", "abort 3"}) EXPECT_EQ(nccl.count(call), 1) << call;
  EXPECT_EQ(nccl.calls().size(), 6u) << "nothing is destroyed that was aborted";
}

TEST(NcclMembers, WorkThatNeverEndsIsAbortedAtTheDeadline) {
  const FakeNccl nccl;
  NcclMembers all;
  all.add(joined(nccl, caller(milliseconds{20})));
  const core::Deadline deadline = core::Deadline::after(milliseconds{20});
  const Error error = thrown_by([&] {
    for (;;) all.check(deadline);
  });
  EXPECT_EQ(error.failure(), Failure::timeout);
  EXPECT_EQ(nccl.count("abort 1"), 1);
}

TEST(NcclMembers, ARankThatFailsAborts) {
  const FakeNccl nccl;
  thrown_by([&] {
    NcclMembers all;
    all.add(joined(nccl, caller()));
    throw Error(Failure::internal, "something else");
  });
  EXPECT_EQ(nccl.calls(), (Calls{"join 1", "abort 1"}));
}

NcclCaller rank0_place(NcclRegistration registration = NcclRegistration::none) {
  return {.rank = 0, .device = 0, .timeout = std::chrono::seconds{10}, .registration = registration};
}

TEST(NcclBuffers, AreKnownToEveryCommunicatorAndStruckOffBeforeTheyAreFreed) {
  const FakeNccl nccl;
  NcclBuffers buffers(nccl, rank0_place(NcclRegistration::symmetric));
  buffers.add(join_members(nccl, rank0_place(), 1, 0, {}));
  void* memory = buffers.allocate(64);
  ASSERT_NE(memory, nullptr);
  buffers.add(join_members(nccl, rank0_place(), 1, 0, {}));
  buffers.release(memory);
  EXPECT_EQ(nccl.calls(), (Calls{"join 1", "allocate", "enroll symmetric 64 1", "join 2", "enroll symmetric 64 2",
                                 "strike off 1", "strike off 2", "release"}));
}

TEST(NcclBuffers, WithoutRegistrationMemoryIsNcclsAndNoMore) {
  const FakeNccl nccl;
  NcclBuffers buffers(nccl, rank0_place(NcclRegistration::none));
  buffers.add(join_members(nccl, rank0_place(), 1, 0, {}));
  buffers.release(buffers.allocate(64));
  EXPECT_EQ(nccl.calls(), (Calls{"join 1", "allocate", "release"}));
}

TEST(NcclBuffers, ACommunicatorThatIsBrokenIsNotAsked) {
  FakeNccl nccl;
  NcclBuffers buffers(nccl, rank0_place(NcclRegistration::local));
  const NcclMemberPtr member = join_members(nccl, rank0_place(), 1, 0, {});
  buffers.add(member);
  void* memory = buffers.allocate(32);
  EXPECT_EQ(nccl.count("enroll local 32 1"), 1);
  nccl.enroll_result = FakeNccl::kSystemError;
  EXPECT_THROW(buffers.allocate(16), core::Error);
  EXPECT_TRUE(member->broken);
  buffers.release(memory);
  EXPECT_EQ(nccl.count("abort 1"), 1);
  EXPECT_EQ(nccl.count("strike off 1"), 0);
  EXPECT_EQ(nccl.count("release"), 1);
}

// Holds on every machine and in every build: NCCL runs, or one line explains why not.

class WorldOfOne final : public transports::World {
 public:
  std::string_view name() const override { return "one"; }
  int rank() const override { return 0; }
  int num_ranks() const override { return 1; }
  void barrier() override {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::memcpy(all.data(), mine.data(), mine.size());
  }
};

TEST(NcclLibrary, RunsOrSaysWhyNot) {
  const auto why = why_no_nccl();
  if (core::why_no_cuda()) {
    ASSERT_TRUE(why.has_value());
    EXPECT_TRUE(why->starts_with("NCCL ")) << *why;
    EXPECT_EQ(why->find('\n'), std::string::npos) << *why;
  }
  EXPECT_EQ(nccl_version().empty(),
            why && why->find("not built in") != std::string::npos && why->starts_with("NCCL is not built in"));
}

TEST(NcclLibrary, TheCpuCannotJoin) {
  WorldOfOne world;
  const auto cpu = core::make_cpu_device();
  const Error error = thrown_by([&] { join_nccl(world, *cpu, {}); });
  EXPECT_TRUE(error.failure() == core::Failure::usage || error.failure() == core::Failure::not_built);
  EXPECT_TRUE(std::string(error.what()).starts_with("NCCL ")) << error.what();
}

}  // namespace
}  // namespace lockstep::libraries
