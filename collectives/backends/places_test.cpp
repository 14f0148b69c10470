#include "collectives/backends/places.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::backends {
namespace {

TEST(GpuAssignment, RanksTakeDevicesInTurn) {
  for (int gpus = 1; gpus <= 8; ++gpus) {
    for (int ranks = 1; ranks <= 17; ++ranks) {
      std::vector<int> counted(static_cast<std::size_t>(gpus));
      for (int rank = 0; rank < ranks; ++rank) {
        ++counted.at(static_cast<std::size_t>(assigned_gpu(rank, ranks, gpus).device));
      }
      for (int rank = 0; rank < ranks; ++rank) {
        const GpuAssignment place = assigned_gpu(rank, ranks, gpus);
        EXPECT_EQ(place.ranks_on_it, counted.at(static_cast<std::size_t>(place.device))) << ranks << " on " << gpus;
      }
    }
  }
}

TEST(GpuAssignment, BlocksOfAllRanksRunAtOnce) {
  for (int ranks = 1; ranks <= 264; ++ranks) {
    const auto blocks = blocks_of_a_rank(132, ranks);
    ASSERT_TRUE(blocks.has_value());
    EXPECT_GE(*blocks, 1);
    EXPECT_LE(*blocks * ranks, 2 * 132);
  }
  EXPECT_FALSE(blocks_of_a_rank(132, 265).has_value());
  EXPECT_EQ(blocks_of_a_rank(132, 1), kBlocksAlone);
  EXPECT_EQ(blocks_of_a_rank(8, 1), 16);
  EXPECT_EQ(blocks_of_a_rank(132, 2), 132) << "ranks that share a GPU are limited by its memory, which takes all of it";
}

TEST(GpuAssignment, TheUserSaysHowManyBlocksAsFarAsTheyFit) {
  EXPECT_EQ(blocks_of_a_rank(132, 1, 264), 264);
  EXPECT_EQ(blocks_of_a_rank(132, 4, 16), 16);
  EXPECT_FALSE(blocks_of_a_rank(132, 4, 67).has_value());
}

}  // namespace
}  // namespace lockstep::backends
