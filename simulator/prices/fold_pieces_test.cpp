#include "simulator/prices/fold_pieces.h"

#include <gtest/gtest.h>

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GroupKind;
using schedules::Op;
using schedules::Piece;

std::int64_t a_ps_a_byte(Comm, GroupKind, std::int64_t bytes) {
  return bytes;
}

Piece kernel(std::int64_t ps, std::int32_t part = 0) {
  return {.op = Op::forward, .part = part, .amount = ps};
}
Piece collective(std::int64_t bytes, bool beside = false) {
  return {.op = Op::layer_collective, .part = 0, .amount = bytes, .comm = Comm::all_reduce, .beside_next = beside};
}

std::vector<std::int64_t> folded(std::vector<Piece> forward) {
  std::vector<std::int64_t> amounts;
  for (const Piece& piece : fold_pieces({std::move(forward), {}, {}, {}}, a_ps_a_byte).forward) {
    EXPECT_EQ(piece.comm, Comm::none);
    amounts.push_back(piece.amount);
  }
  return amounts;
}

using Amounts = std::vector<std::int64_t>;

TEST(FoldPieces, ACollectiveBecomesTimeOfTheKernelBeforeIt) {
  EXPECT_EQ(folded({kernel(10), collective(3), kernel(5), collective(2)}), Amounts{20});
  EXPECT_EQ(folded({kernel(10), collective(3), kernel(5, 1)}), (Amounts{13, 5}));
}

TEST(FoldPieces, ACollectiveBesideAKernelCountsWhereItIsLonger) {
  EXPECT_EQ(folded({kernel(10), collective(4, true), kernel(7)}), Amounts{17});
  EXPECT_EQ(folded({kernel(10), collective(9, true), kernel(7)}), Amounts{19});
  EXPECT_EQ(folded({kernel(10), collective(9, true)}), Amounts{19});
}

TEST(FoldPieces, ACollectiveTakesItsPartOfTheKernelBesideIt) {
  EXPECT_EQ(together_ps(100, 0, 0.2), 100);
  EXPECT_EQ(together_ps(100, 50, 0.2), 110) << "50 at 0.8 of the rate";
  EXPECT_EQ(together_ps(80, 100, 0.2), 100) << "ends with it";
  EXPECT_EQ(together_ps(20, 100, 0.2), 100);
  EXPECT_EQ(together_ps(100, 300, 0), 300);
  const schedules::StageRecipe recipe{{collective(50, true), kernel(100)}, {}, {}, {}};
  EXPECT_EQ(fold_pieces(recipe, a_ps_a_byte, 0.2).forward.front().amount, 110);
}

TEST(FoldPieces, ACollectiveInFrontCountsForTheFirstKernel) {
  EXPECT_EQ(folded({collective(4), kernel(7), kernel(1, 1)}), (Amounts{11, 1}));
}

}  // namespace
}  // namespace lockstep::simulator
