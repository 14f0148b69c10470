// The CUDA executor's kernels, compiled from their own source, on emulated grids whose blocks run concurrently, one
// grid per rank: tests their waits, signals, moves and sums as far as that is possible without a GPU.
#include <gtest/gtest.h>

#include "core/device.h"
#include "testing/collectives/cuda_cases.h"
#include "testing/core/thrown.h"
#include "testing/emulated_cuda/emulated_grid.h"

namespace lockstep::executors {
namespace {

// An emulated device, whose memory all ranks can access.
TestRank emulated_rank(LocalWorld& world, const CudaOptions& options) {
  kernels::emulated::set_order(static_cast<std::uint64_t>(world.rank()) + 1);
  kernels::emulated::run_blocks_together();
  return test_rank_on(core::make_cpu_device(), world, options);
}

std::string run_emulated(int num_ranks, const std::vector<Case>& cases, const CudaOptions& options,
                         std::size_t shift_bytes = 0) {
  return run_cases_on(num_ranks, emulated_rank, cases, options, shift_bytes);
}

constexpr std::int64_t kWithout = std::int64_t{1} << 40;  // no limit

// Few threads, as each is a coroutine, and passes that are cut into many pieces.
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

TEST(CudaRanks, TooManyLanesAreRefused) {
  EXPECT_TRUE(core::has(run_emulated(4, all_algorithms(100, {}), small_blocks(1, 0)),
                        "thread blocks per rank that can run at once: 1"));
}

CudaOptions impatient() {
  CudaOptions options = small_blocks(4, 0);
  options.timeout = std::chrono::milliseconds(300);
  return options;
}

// The other ranks' kernels end by themselves, and name the rank that they waited for.
TEST(CudaRanks, ARankThatStaysAwayIsNamed) {
  const std::vector<std::string> said = said_of_rank_1_away(emulated_rank, impatient());
  for (std::size_t rank : {0, 2}) EXPECT_TRUE(core::has(said[rank], "for rank 1 to enter"));
}

TEST(CudaRanks, WhoComesLateSaysWhatTheOthersSaid) {
  const std::string said = said_by_who_comes_late(emulated_rank, impatient());
  EXPECT_TRUE(core::has(said, "rank 0: "));
  EXPECT_TRUE(core::has(said, "for rank 1 to "));
}

}  // namespace
}  // namespace lockstep::executors
