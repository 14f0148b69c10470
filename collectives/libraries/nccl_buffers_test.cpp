// Registration of buffers, tested over a fake of NCCL's calls.
#include "collectives/libraries/nccl_member.h"

#include <gtest/gtest.h>

#include "collectives/libraries/fake_nccl_for_tests.h"

namespace lockstep::libraries {
namespace {

using Calls = std::vector<std::string>;

NcclPlace rank0_place() {
  return {.rank = 0, .device = 0, .timeout = std::chrono::seconds{10}};
}

TEST(NcclBuffers, AreKnownToEveryCommunicatorAndStruckOffBeforeTheyAreFreed) {
  const FakeNccl nccl;
  NcclBuffers buffers(nccl, rank0_place(), NcclRegistration::symmetric);
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
  NcclBuffers buffers(nccl, rank0_place(), NcclRegistration::none);
  buffers.add(join_members(nccl, rank0_place(), 1, 0, {}));
  buffers.release(buffers.allocate(64));
  EXPECT_EQ(nccl.calls(), (Calls{"join 1", "allocate", "release"}));
}

TEST(NcclBuffers, ACommunicatorThatIsBrokenIsNotAsked) {
  FakeNccl nccl;
  NcclBuffers buffers(nccl, rank0_place(), NcclRegistration::local);
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

}  // namespace
}  // namespace lockstep::libraries
