#include "collectives/plan/count.h"

#include <gtest/gtest.h>

#include "collectives/plan/chunk_range.h"
#include "collectives/plan/hand_made_plans.h"

namespace lockstep::plan {
namespace {

using collectives::Kind;

collectives::Operation floats(Kind kind, int count) {
  collectives::Operation operation;
  operation.kind = kind;
  operation.count = count;
  return operation;
}

Counts counts_of(const Plan& plan, const collectives::Operation& operation) {
  return count(plan, contents_of(plan, {plan.num_ranks, false}), operation);
}

TEST(ChunkRange, CoversTheBlockEvenly) {
  for (std::int64_t k = 1; k <= 9; ++k) {
    for (std::int64_t n = 0; n <= 40; ++n) {
      EXPECT_EQ(chunk_begin(n, k, 0), 0);
      EXPECT_EQ(chunk_begin(n, k, k), n);
      for (std::int64_t i = 0; i < k; ++i) {
        EXPECT_EQ(chunk_begin(n, k, i), i * n / k);
        EXPECT_GE(chunk_size(n, k, i), n / k);
        EXPECT_LE(chunk_size(n, k, i), n / k + 1);
      }
    }
  }
  EXPECT_EQ(chunk_begin(std::int64_t{1} << 62, 1 << 20, 1 << 20), std::int64_t{1} << 62);
}

TEST(Count, RingIsTheClosedForm) {
  for (int p = 2; p <= 17; ++p) {
    const Counts counts = counts_of(ring_plan(p), floats(Kind::all_reduce, 10 * p));
    EXPECT_EQ(counts.steps, 2 * (p - 1));
    EXPECT_EQ(counts.rounds, 2 * (p - 1));
    for (const RankCounts& rank : counts.ranks) {
      EXPECT_EQ(rank.messages_sent, 2 * (p - 1));
      EXPECT_EQ(rank.chunks_received, 2 * (p - 1));
      EXPECT_EQ(rank.bytes_sent, 2 * (p - 1) * 40);
      EXPECT_EQ(rank.bytes_received, rank.bytes_sent);
      EXPECT_EQ(rank.bytes_reduced, (p - 1) * 40);
      EXPECT_EQ(rank.bytes_copied, 0);
    }
    ASSERT_EQ(counts.links.size(), static_cast<std::size_t>(p));
    for (const LinkCounts& link : counts.links) {
      EXPECT_EQ(link.to, (link.from + 1) % p);
      EXPECT_EQ(link.bytes, 2 * (p - 1) * 40);
    }
  }
}

TEST(Count, UnevenChunksAndFewerElementsThanChunks) {
  for (int count = 0; count <= 12; ++count) {
    const Counts counts = counts_of(ring_plan(5), floats(Kind::all_reduce, count));
    std::int64_t sent = 0;
    for (const RankCounts& rank : counts.ranks) sent += rank.bytes_sent;
    EXPECT_EQ(sent, 2 * (5 - 1) * count * 4);
    EXPECT_EQ(counts.busiest().messages_sent, 8);
  }
}

TEST(Count, ExchangeAndHalvingDoubling) {
  for (const int lg : {1, 2, 3, 4}) {
    const int p = 1 << lg;
    const Counts exchange = counts_of(exchange_plan(p), floats(Kind::all_reduce, p));
    EXPECT_EQ(exchange.steps, lg);
    EXPECT_EQ(exchange.busiest().bytes_sent, lg * p * 4);
    const Counts halving = counts_of(halving_doubling_plan(p), floats(Kind::all_reduce, p));
    EXPECT_EQ(halving.steps, 2 * lg);
    EXPECT_EQ(halving.rounds, 2 * (p - 1));  // one message per chunk
    EXPECT_EQ(halving.busiest().bytes_sent, 2 * (p - 1) * 4);
  }
}

// A chain's latency is p-1 hops; the rounds show that a rank forwards one chunk at a time.
TEST(Count, ChainStepsAndRounds) {
  for (int p = 2; p <= 6; ++p) {
    for (int k = 1; k <= 5; ++k) {
      const Counts counts = counts_of(chain_plan(p, 1, k), floats(Kind::broadcast, k));
      EXPECT_EQ(counts.steps, p - 1);
      EXPECT_EQ(counts.rounds, p - 2 + k);
      EXPECT_EQ(counts.ranks[0].bytes_sent, 0);  // the chain begins at rank 1 and ends at rank 0
      EXPECT_EQ(counts.ranks[1].bytes_copied, k * 4);
    }
  }
}

TEST(Count, DirectIsOneStepAndManyRounds) {
  const Counts counts = counts_of(direct_all_to_all_plan(Kind::all_to_all, 6), floats(Kind::all_to_all, 3));
  EXPECT_EQ(counts.steps, 1);
  EXPECT_EQ(counts.rounds, 5);
  EXPECT_EQ(counts.links.size(), 30U);
}

TEST(Count, AllToAllVTakesItsSizesFromTheMatrix) {
  collectives::Operation operation = floats(Kind::all_to_all_v, 0);
  auto matrix = std::make_shared<collectives::CountMatrix>(collectives::CountMatrix{3, {1, 2, 3, 0, 5, 6, 7, 8, 9}});
  operation.matrix = matrix;
  const Counts counts = counts_of(direct_all_to_all_plan(Kind::all_to_all_v, 3, 2), operation);
  for (const LinkCounts& link : counts.links) EXPECT_EQ(link.bytes, 4 * matrix->at(link.from, link.to));
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(counts.ranks[static_cast<std::size_t>(r)].bytes_copied, 4 * matrix->at(r, r));
  }
}

TEST(Count, SingleRank) {
  const Counts counts = counts_of(ring_plan(1), floats(Kind::all_reduce, 7));
  EXPECT_EQ(counts.steps, 0);
  EXPECT_EQ(counts.rounds, 0);
  EXPECT_EQ(counts.busiest().bytes_copied, 28);
}

}  // namespace
}  // namespace lockstep::plan
