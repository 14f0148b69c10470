#include "collectives/libraries/nccl_rules.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;
using collectives::Operation;
using core::DType;

constexpr int kHopper = 90;
constexpr int kAmpere = 80;

Operation operation(Kind kind, DType dtype = DType::f32, bool in_place = false) {
  return {.kind = kind, .count = 16, .dtype = dtype, .in_place = in_place};
}

TEST(NcclRules, EveryKindAndDtypeRunsOutOfPlaceOnHopper) {
  for (const Kind kind : collectives::all_kinds()) {
    for (const DType dtype : core::all_dtypes()) {
      EXPECT_EQ(nccl_refusal(operation(kind, dtype), 8, kHopper), std::nullopt)
          << collectives::name_of(kind) << " " << core::name_of(dtype);
    }
  }
}

TEST(NcclRules, InPlaceIsRefusedWhereWhatArrivesOverwritesWhatIsToBeSent) {
  for (const Kind kind : collectives::all_kinds()) {
    const bool refused = kind == Kind::all_to_all || kind == Kind::all_to_all_v || kind == Kind::send_recv;
    EXPECT_EQ(nccl_refusal(operation(kind, DType::f32, true), 4, kHopper).has_value(), refused)
        << collectives::name_of(kind);
  }
  EXPECT_EQ(*nccl_refusal(operation(Kind::all_to_all, DType::f32, true), 4, kHopper),
            "NCCL has no all_to_all in place");
}

TEST(NcclRules, HypercubeNeedsAPowerOfTwo) {
  for (int n = 1; n <= 33; ++n) {
    const bool power_of_two = n == 1 || n == 2 || n == 4 || n == 8 || n == 16 || n == 32;
    EXPECT_EQ(nccl_refusal(operation(Kind::hypercube), n, kHopper).has_value(), !power_of_two) << n;
  }
  EXPECT_EQ(*nccl_refusal(operation(Kind::hypercube), 6, kHopper), "hypercube needs a power of two of ranks, not 6");
}

TEST(NcclRules, OldGpusMoveEightBitFloatsButDoNotReduceThem) {
  EXPECT_EQ(*nccl_refusal(operation(Kind::all_reduce, DType::f8e4m3), 2, kAmpere),
            "NCCL reduces f8e4m3 on GPUs of compute capability 9.0 and above; this one has 8.0");
  EXPECT_TRUE(nccl_refusal(operation(Kind::reduce_scatter, DType::f8e5m2), 2, 89).has_value());
  EXPECT_EQ(nccl_refusal(operation(Kind::all_gather, DType::f8e4m3), 2, kAmpere), std::nullopt);
  EXPECT_EQ(nccl_refusal(operation(Kind::all_reduce, DType::bf16), 2, kAmpere), std::nullopt);
}

TEST(NcclRules, TwoRanksOnOneGpuAreNamed) {
  const GpuUuid a{1};
  const GpuUuid b{2};
  const GpuUuid c{3};
  const NcclSharing old{.version_code = 22809, .enabled = true};
  EXPECT_EQ(shared_gpu_refusal(std::vector{a, b, c}, old), std::nullopt);
  EXPECT_EQ(shared_gpu_refusal(std::vector{a}, old), std::nullopt);
  EXPECT_EQ(
      *shared_gpu_refusal(std::vector{a, b, c, b}, old),
      "ranks 1 and 3 are on the same GPU: NCCL 2.28.9 needs one GPU per rank; NCCL 2.30 or newer lets ranks share "
      "one with NCCL_MULTI_RANK_GPU_ENABLE=1");
}

TEST(NcclRules, BlocksOfRanksOnOneGpuFitItTogether) {
  const auto blocks = [](std::size_t ranks, int multiprocessors) {
    return most_blocks(std::vector<GpuUuid>(ranks, GpuUuid{1}), 0, multiprocessors);
  };
  EXPECT_EQ(blocks(2, 132), 32);
  EXPECT_EQ(blocks(4, 132), 24);
  EXPECT_EQ(blocks(8, 132), 12);
  EXPECT_EQ(blocks(16, 132), 4);
  EXPECT_EQ(blocks(16, 16), 1);
  const std::vector<GpuUuid> mixed{{1}, {2}, {1}};
  EXPECT_EQ(most_blocks(mixed, 2, 132), 32);
  EXPECT_EQ(most_blocks(mixed, 1, 132), 0) << "it has its GPU alone";
}

TEST(NcclRules, VersionsWithoutAllCallsAreRefused) {
  EXPECT_EQ(version_refusal(22703), "NCCL 2.27.3 is too old; allowed: 2.28 or newer");
  EXPECT_EQ(version_refusal(22800), std::nullopt);
  EXPECT_EQ(version_refusal(23000), std::nullopt);
}

TEST(NcclRules, NewVersionsShareAGpuIfTheyAreTold) {
  const std::vector<GpuUuid> one_gpu(4, GpuUuid{1});
  EXPECT_EQ(shared_gpu_refusal(one_gpu, {.version_code = 23000, .enabled = true}), std::nullopt);
  EXPECT_EQ(*shared_gpu_refusal(one_gpu, {.version_code = 23000, .enabled = false}),
            "ranks 0 and 1 are on the same GPU: NCCL lets ranks share a GPU only with NCCL_MULTI_RANK_GPU_ENABLE=1 in "
            "the environment");
  EXPECT_TRUE(sharing_refusal({.version_code = 22907, .enabled = true}).has_value());
  EXPECT_FALSE(sharing_refusal({.version_code = 23204, .enabled = true}).has_value());
}

TEST(NcclConfig, IsTheUsersWithinWhatSharersOfAGpuLeave) {
  NcclConfig asked;
  EXPECT_EQ(config_within(asked, 0), asked);
  EXPECT_EQ(config_within(asked, 12).max_ctas, 12);
  asked.min_ctas = 2;
  asked.max_ctas = 8;
  asked.net_name = "Socket";
  EXPECT_EQ(config_within(asked, 0), asked);
  EXPECT_EQ(config_within(asked, 12), asked) << "fewer than it may have";
  try {
    config_within(asked, 4);
    FAIL() << "accepted";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::usage);
    EXPECT_STREQ(
        error.what(),
        "--max-ctas 8: ranks share a GPU, on which the thread blocks of all must run at the same time; allowed: "
        "1 to 4");
  }
  asked.max_ctas.reset();
  EXPECT_THROW(config_within(asked, 1), core::Error) << "two at least, of one at most";
}

}  // namespace
}  // namespace lockstep::libraries
