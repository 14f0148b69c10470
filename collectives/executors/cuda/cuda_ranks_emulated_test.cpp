// The kernels of the CUDA executor, their own source, on emulated grids whose blocks run at the same time, one for each
// rank: what they wait for, tell, move and combine, as far as that can be known without a GPU.
#include <gtest/gtest.h>

#include "collectives/executors/cuda/cuda_cases.h"
#include "collectives/executors/cuda/multimem_program.h"
#include "core/device_block.h"
#include "core/device_cpu.h"
#include "kernels/emulated_cuda/emulated_grid.h"
#include "kernels/emulated_cuda/emulated_multicast.h"

namespace lockstep::executors {
namespace {

// An emulated device, whose memory all see.
TestRank emulated_rank(LocalWorld& world, const CudaOptions& options) {
  kernels::emulated::set_order(static_cast<std::uint64_t>(world.rank()) + 1);
  kernels::emulated::run_blocks_together();
  return test_rank_on(core::make_cpu_device(), world, options);
}

std::string run_emulated(int num_ranks, const std::vector<Case>& cases, const CudaOptions& options,
                         std::size_t shift_bytes = 0) {
  return run_cases_on(num_ranks, emulated_rank, cases, options, shift_bytes);
}

constexpr std::int64_t kWithout = std::int64_t{1} << 40;  // limit

// Few threads, as each is a coroutine, and passes that are cut into many.
CudaOptions small_blocks(int most_blocks, std::int64_t stage_below_bytes) {
  return {.timeout = std::chrono::seconds(60),
          .most_blocks = most_blocks,
          .threads = 32,
          .stage_below_bytes = stage_below_bytes,
          .segment_bytes = 1024,
          .packets_below_bytes = 0};
}

CudaOptions packets(int most_blocks) {
  CudaOptions options = small_blocks(most_blocks, 0);
  options.packets_below_bytes = kWithout;
  options.packets_only = true;
  return options;
}

// Each block is a thread of a machine that has few cores.
int blocks_for(int ranks) {
  return ranks <= 2 ? 16 : 4;
}

TEST(CudaRanks, EveryAlgorithmGivesExactBitsWithPeersReadInPlace) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    EXPECT_EQ(run_emulated(ranks, all_algorithms(1000, {}), small_blocks(blocks_for(ranks), 0)), "");
  }
}

TEST(CudaRanks, EveryAlgorithmGivesExactBitsStaged) {
  for (int ranks : {2, 3, 5}) {
    EXPECT_EQ(run_emulated(ranks, all_algorithms(1000, {}), small_blocks(blocks_for(ranks), kWithout)), "");
  }
}

TEST(CudaRanks, EveryAlgorithmGivesExactBitsByPackets) {
  for (int ranks : {2, 3, 8}) EXPECT_EQ(run_emulated(ranks, all_algorithms(500, {}), packets(blocks_for(ranks))), "");
  for (std::int64_t count : {0, 1, 3}) EXPECT_EQ(run_emulated(5, all_algorithms(count, {}), packets(4)), "");
}

TEST(CudaRanks, LanesOfManyBlocksAndLongPasses) {
  for (int ranks : {2, 3}) EXPECT_EQ(run_emulated(ranks, all_algorithms(8011, {}), small_blocks(16, 0)), "");
}

TEST(CudaRanks, CountsBelowTheRankCount) {
  for (std::int64_t count : {0, 1, 3}) {
    EXPECT_EQ(run_emulated(5, all_algorithms(count, {}), small_blocks(4, 0)), "");
  }
}

TEST(CudaRanks, BuffersThatWideAccessesCannotTake) {
  EXPECT_EQ(run_emulated(3, all_algorithms(999, {}), small_blocks(16, 0), 4), "");
  EXPECT_EQ(run_emulated(3, all_algorithms(999, {}), packets(16), 4), "");
}

TEST(CudaRanks, AllTypesAndOperations) {
  EXPECT_EQ(run_emulated(3, all_types_and_operations(333), small_blocks(8, 0)), "");
  EXPECT_EQ(run_emulated(3, all_types_and_operations(333), packets(8)), "");
}

struct EmulatedMulticast final : MulticastMemory {
  EmulatedMulticast(LocalWorld& world, core::Device& device, std::size_t size_bytes) : mine(device, size_bytes) {
    replicas = transports::all_gather_value(world, mine.data());
    multicast = kernels::emulated::make_multicast(replicas, size_bytes);
  }
  ~EmulatedMulticast() override { kernels::emulated::end_multicast(multicast); }
  core::DeviceBlock mine;
};

// A device with the switch's multicast addresses.
TestRank emulated_rank_at_a_switch(LocalWorld& world, const CudaOptions& options) {
  auto device = core::make_cpu_device();
  CudaOptions with_switch = options;
  with_switch.multicast = [&world, &device = *device](std::size_t size_bytes) {
    return std::make_unique<EmulatedMulticast>(world, device, size_bytes);
  };
  kernels::emulated::set_order(static_cast<std::uint64_t>(world.rank()) + 1);
  kernels::emulated::run_blocks_together();
  return test_rank_on(std::move(device), world, with_switch);
}

// Those of the cases in which the switch has something to do.
std::vector<Case> for_the_switch(const std::vector<Case>& cases, int ranks) {
  std::vector<Case> some;
  for (const Case& c : cases) {
    const auto choice = algorithms::parse_choice(c.algorithm->kind, c.algorithm->name);
    if (c.algorithm->kind == collectives::Kind::all_to_all_v || algorithms::refusal(choice, ranks, 0)) continue;
    const Operation operation{.kind = c.algorithm->kind, .count = c.count, .dtype = c.dtype, .op = c.op};
    if (cuda::lower_for_multimem(algorithms::make_plan(choice, ranks, 0), operation)) some.push_back(c);
  }
  return some;
}

TEST(CudaRanks, TheSwitchGivesExactBits) {
  for (int ranks : {2, 3, 4, 8}) {
    const auto cases = for_the_switch(all_algorithms(64 * ranks, {}), ranks);
    EXPECT_GT(cases.size(), 3U) << ranks;
    EXPECT_EQ(run_cases_on(ranks, emulated_rank_at_a_switch, cases, small_blocks(blocks_for(ranks), 0)), "");
  }
  const auto types = for_the_switch(all_types_and_operations(3 * 64), 3);
  EXPECT_GT(types.size(), 15U);
  EXPECT_EQ(run_cases_on(3, emulated_rank_at_a_switch, types, small_blocks(2, 0), 4), "");
}

TEST(CudaRanks, WhatTheSwitchCannotDoIsRefused) {
  const auto said = run_cases_on(3, emulated_rank_at_a_switch, all_algorithms(100, {}), small_blocks(2, 0));
  EXPECT_NE(said.find("cannot go by multimem; allowed: "), std::string::npos) << said;
}

TEST(CudaRanks, TooManyLanesAreRefused) {
  EXPECT_NE(run_emulated(4, all_algorithms(100, {}), small_blocks(1, 0)).find("so many thread blocks of a rank"),
            std::string::npos);
}

CudaOptions impatient() {
  CudaOptions options = small_blocks(4, 0);
  options.timeout = std::chrono::milliseconds(300);
  return options;
}

// The others' kernels end by themselves, and say for whom they waited.
TEST(CudaRanks, ARankThatStaysAwayIsNamed) {
  const std::vector<std::string> said = said_of_rank_1_away(emulated_rank, impatient());
  for (std::size_t rank : {0, 2}) EXPECT_NE(said[rank].find("for rank 1 to enter"), std::string::npos) << said[rank];
}

TEST(CudaRanks, WhoComesLateSaysWhatTheOthersSaid) {
  const std::string said = said_by_who_comes_late(emulated_rank, impatient());
  EXPECT_NE(said.find("rank 0: "), std::string::npos) << said;
  EXPECT_NE(said.find("for rank 1 to "), std::string::npos) << said;
}

}  // namespace
}  // namespace lockstep::executors
