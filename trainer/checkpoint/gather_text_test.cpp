#include "trainer/checkpoint/save_checkpoint.h"

#include <gtest/gtest.h>

#include "collectives/transports/local_world.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/ranks_for_tests.h"

namespace lockstep::trainer {
namespace {

std::string text_of(int rank, int size) {
  return std::string(static_cast<std::size_t>(size), static_cast<char>('a' + rank));
}

TEST(GatherText, TextsOfAnyLengthComeInTheOrderOfRanks) {
  for (const int ranks : {1, 2, 4}) {
    transports::LocalGroup group({.num_ranks = ranks});
    group.run([&](transports::LocalWorld& world) {
      for (const int unit : {0, 1, 700, 5000}) {  // a board takes 1024 bytes at once: more and fewer
        const std::vector<std::string> all = gather_text(world, text_of(world.rank(), unit * world.rank()));
        ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
        for (int r = 0; r < ranks; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], text_of(r, unit * r));
      }
    });
  }
}

// As a trainer calls it: ranks of a world write one checkpoint.
TEST(GatherText, RanksOfAWorldSave) {
  const TemporaryFolder folder;
  const std::vector<WholeTensor> tensors = {{"w", {4, 6}}};
  transports::LocalGroup group({.num_ranks = 3});
  group.run([&](transports::LocalWorld& world) {
    Share share;
    share.pieces = {{0, std::int64_t{8} * world.rank(), 8}};
    share.place();
    share.fill(5);
    const auto gather = [&world](const std::string& mine) { return gather_text(world, mine); };
    save_checkpoint(folder.path(), {.step = 5}, tensors, share.pieces, {world.rank(), gather}, 1);
  });
  Share share;
  share.pieces = {{0, 0, 24}};
  share.place();
  Checkpoint(folder.path()).read(tensors, share.pieces);
  EXPECT_EQ(share.wrong(5), 0);
}

}  // namespace
}  // namespace lockstep::trainer
