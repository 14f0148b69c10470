#include "workload/context_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "testing/workload/context_check.h"
#include "workload/context_layer.h"

namespace lockstep::workload {
namespace {

std::vector<ContextShape> all_shapes(std::int32_t most_ranks) {
  std::vector<ContextShape> shapes;
  for (std::size_t way = 0; way < kContextWays.size(); ++way) {
    for (std::int32_t ranks = 1; ranks <= most_ranks; ++ranks) {
      for (const bool causal : {true, false}) {
        const ContextShape shape{static_cast<ContextWay>(way), ranks, causal};
        if (why_invalid(shape).empty()) shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

std::string text_of(const ContextShape& shape) {
  return std::string(name_of(shape.way)) + " of " + std::to_string(shape.ranks) + (shape.causal ? ", causal" : "");
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(ContextList, EveryWayIsRightForOneToSeventeenRanks) {
  for (const ContextShape& shape : all_shapes(17)) {
    EXPECT_EQ(joined(check(context_list(shape), 3)), "") << text_of(shape);
  }
}

TEST(ContextList, ChunksOfAllRanksAreTheSequence) {
  for (const ContextShape& shape : all_shapes(9)) {
    std::vector<std::int32_t> all;
    for (std::int32_t r = 0; r < shape.ranks; ++r) {
      for (const std::int32_t chunk : chunks_of(shape, r)) all.push_back(chunk);
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(static_cast<std::int32_t>(all.size()), chunks_of(shape));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<std::int32_t>(i));
  }
}

// Each way of breaking a list, where it can be applied, is found.
using Mutant = bool (*)(ContextTurn&);  // whether it changed the turn
struct NamedMutant {
  const char* name;
  Mutant apply;
};
constexpr std::array kMutants{
    NamedMutant{"a block is missing",
                [](ContextTurn& turn) {
                  if (turn.blocks.empty()) return false;
                  turn.blocks.pop_back();
                  return true;
                }},
    NamedMutant{"a block is done twice",
                [](ContextTurn& turn) {
                  if (turn.blocks.empty()) return false;
                  turn.blocks.push_back(turn.blocks.front());
                  return true;
                }},
    NamedMutant{"a full block has a mask",
                [](ContextTurn& turn) {
                  if (turn.blocks.empty() || turn.blocks.front().causal) return false;
                  turn.blocks.front().causal = true;
                  return true;
                }},
    NamedMutant{"a causal block has none",
                [](ContextTurn& turn) {
                  if (turn.blocks.empty() || !turn.blocks.front().causal) return false;
                  turn.blocks.front().causal = false;
                  return true;
                }},
    NamedMutant{"operands are not sent",
                [](ContextTurn& turn) {
                  if (turn.operands.empty() || turn.operands.front().sends.empty()) return false;
                  turn.operands.front().sends.clear();
                  return true;
                }},
    NamedMutant{"operands of another rank are sent",
                [](ContextTurn& turn) {
                  if (turn.operands.empty() || turn.operands.front().sends.empty()) return false;
                  if (turn.operands.front().comm != schedules::Comm::shift) return false;
                  turn.operands.front().sends.front().owner += 1;
                  return true;
                }},
    NamedMutant{"operands do not come",
                [](ContextTurn& turn) {
                  if (turn.operands.empty()) return false;
                  turn.operands.clear();
                  return true;
                }},
    NamedMutant{"results stay",
                [](ContextTurn& turn) {
                  if (turn.results.empty() || turn.results.front().sends.empty()) return false;
                  turn.results.clear();
                  return true;
                }},
};

TEST(ContextCheck, FindsEveryMutantOfEveryTurn) {
  for (const ContextShape& shape : all_shapes(5)) {
    if (shape.ranks == 1) continue;
    const ContextList right = context_list(shape);
    for (const NamedMutant& mutant : kMutants) {
      for (std::int32_t rank = 0; rank < shape.ranks; ++rank) {
        for (std::size_t t = 0; t < static_cast<std::size_t>(right.turns()); ++t) {
          for (const bool backward : {false, true}) {
            ContextList wrong = right;
            ContextSides& sides = wrong.of_rank[static_cast<std::size_t>(rank)];
            if (!mutant.apply((backward ? sides.backward : sides.forward)[t])) continue;
            if (!shape.causal && std::string(mutant.name) == "a full block has a mask")
              continue;  // pairs hidden: below
            EXPECT_NE(joined(check(wrong, 1)), "") << text_of(shape) << ", " << mutant.name << ", rank " << rank
                                                   << ", turn " << t << (backward ? ", backward" : "");
          }
        }
      }
    }
  }
}

TEST(ContextCheck, CausalRingIsUnbalancedAndTheBalancedWaysAreNot) {
  const auto loads = [](ContextWay way) {
    const ContextList list = context_list({way, 4});
    std::vector<double> pairs;
    for (std::int32_t r = 0; r < 4; ++r) pairs.push_back(chunk_pairs(list, r));
    return pairs;
  };
  EXPECT_EQ(loads(ContextWay::ring), (std::vector<double>{0.5, 1.5, 2.5, 3.5}));
  EXPECT_EQ(loads(ContextWay::zigzag), (std::vector<double>{8, 8, 8, 8}));     // chunks of half the length
  EXPECT_EQ(loads(ContextWay::allgather), (std::vector<double>{8, 8, 8, 8}));  // likewise
  EXPECT_EQ(loads(ContextWay::ulysses), (std::vector<double>{8, 8, 8, 8}));    // each has a quarter of the heads
  EXPECT_EQ(loads(ContextWay::lightseq), (std::vector<double>{1.5, 1.5, 2.5, 2.5}));
  // Turn by turn, in pairs of whole ranks' chunks: 8 is what all have.
  EXPECT_EQ(chunk_pairs_in_step(context_list({ContextWay::ring, 4})), 3.5);
  EXPECT_EQ(chunk_pairs_in_step(context_list({ContextWay::zigzag, 4})) / 4, 2);
  EXPECT_EQ(chunk_pairs_in_step(context_list({ContextWay::lightseq, 4})), 2.5);
  EXPECT_EQ(chunk_pairs_in_step(context_list({ContextWay::lightseq, 5})), 2.5);
}

TEST(ContextCheck, BytesAreThoseOfThePapers) {
  // N h elements of 2 bytes per rank before division; P = 8.
  constexpr std::int64_t kTokens = 1024;
  constexpr std::int64_t kHidden = 512;
  const auto whole = static_cast<double>(2 * kTokens * kHidden);
  const auto sent = [](ContextWay way) {
    const ContextLayer layer{.shape = {way, 8},
                             .rank = 3,
                             .length = kTokens,
                             .heads = 8,
                             .kv_heads = 8,
                             .head_columns = kHidden / 8,
                             .dtype = core::DType::bf16};
    return bytes_sent(context_list(layer.shape), layer);
  };
  // Keys and values go past 7 of 8 ranks; backward they do again, and so do their gradients.
  EXPECT_DOUBLE_EQ(sent(ContextWay::ring).forward, 2 * whole * 7 / 8);
  EXPECT_DOUBLE_EQ(sent(ContextWay::ring).backward, 4 * whole * 7 / 8);
  EXPECT_DOUBLE_EQ(sent(ContextWay::zigzag).forward, sent(ContextWay::ring).forward);
  EXPECT_DOUBLE_EQ(sent(ContextWay::allgather).forward, 2 * whole * 7 / 8);
  EXPECT_DOUBLE_EQ(sent(ContextWay::allgather).backward, 4 * whole * 7 / 8);
  // Jacobs et al., section 3.2: 4 N h / P.
  EXPECT_DOUBLE_EQ(sent(ContextWay::ulysses).forward, 4 * whole / 8 * 7 / 8);
  EXPECT_DOUBLE_EQ(sent(ContextWay::ulysses).backward, 4 * whole / 8 * 7 / 8);
  EXPECT_DOUBLE_EQ(sent(ContextWay::colossal).forward, 2 * whole * 7 / 8);
}

// If all ranks wait for each other in each turn, a step takes the sum of the longest.
TEST(ContextList, TheLastRankHasAsMuchToComputeAsAny) {
  for (const ContextShape& shape : all_shapes(9)) {
    const ContextList list = context_list(shape);
    for (std::int32_t t = 0; t < list.turns(); ++t) {
      double most = 0;
      for (std::int32_t r = 0; r < shape.ranks; ++r) most = std::max(most, chunk_pairs(list.turn(r, false, t)));
      EXPECT_EQ(chunk_pairs(list.turn(shape.ranks - 1, false, t)), most) << text_of(shape) << ", turn " << t;
    }
  }
}

TEST(ContextList, RefusesSizesThatDoNotDivide) {
  EXPECT_EQ(why_invalid(ContextLayer{.shape = {ContextWay::ring, 4}, .length = 12}), "");
  EXPECT_EQ(why_invalid(ContextLayer{.shape = {ContextWay::zigzag, 4}, .length = 12}),
            "2 x cp (cp_way=zigzag) is 8, and sequence is 12; allowed: 1 2 3 4 6 12");
  EXPECT_EQ(why_invalid(ContextLayer{.shape = {ContextWay::ulysses, 4}, .length = 8, .heads = 8, .kv_heads = 2}),
            "cp with cp_way=ulysses, which shares out heads, is 4, and kv_heads / tp is 2; allowed: 1 2");
}

TEST(ContextList, RefusesWhatThereIsNot) {
  EXPECT_THROW(context_list({ContextWay::lightseq, 4, false}), core::Error);
  EXPECT_THROW(context_list({ContextWay::ring, 0}), core::Error);
}

}  // namespace
}  // namespace lockstep::workload
