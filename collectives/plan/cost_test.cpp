#include "collectives/plan/cost.h"

#include <gtest/gtest.h>

#include "collectives/plan/plan.h"
#include "testing/plans/plans.h"

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

// Powers of two, so that every sum is exact and times can be compared with ==.
constexpr CostModel kModel{.alpha_us = 8, .beta_us_per_byte = 0.5, .gamma_us_per_byte = 0.25, .copy_us_per_byte = 0};
constexpr double kAlpha = kModel.alpha_us;
constexpr double kBeta = kModel.beta_us_per_byte;
constexpr double kGamma = kModel.gamma_us_per_byte;

double time_us(const Plan& plan, int count, const CostModel& model = kModel) {
  collectives::Operation operation;
  operation.kind = plan.kind;
  operation.count = count;
  operation.root = plan.root;
  return predict(plan, contents_of(plan, {plan.num_ranks, false}), operation, model).time_us;
}

TEST(Cost, RingIsTheClosedForm) {
  for (int p = 2; p <= 33; ++p) {
    const double chunk_bytes = 64;
    EXPECT_EQ(time_us(ring_plan(p), 16 * p),
              2 * (p - 1) * (kAlpha + chunk_bytes * kBeta) + (p - 1) * chunk_bytes * kGamma)
        << p;
  }
}

TEST(Cost, ExchangeIsTheClosedForm) {
  for (const int lg : {1, 2, 3, 5, 7}) {
    const double bytes = 4096;
    EXPECT_EQ(time_us(exchange_plan(1 << lg), 1024), lg * (kAlpha + bytes * kBeta + bytes * kGamma)) << lg;
  }
}

TEST(Cost, ChainIsTheClosedForm) {
  for (int p = 2; p <= 9; ++p) {
    for (int k = 1; k <= 8; ++k) {
      EXPECT_EQ(time_us(chain_plan(p, 0, k), 16 * k), (p - 2 + k) * (kAlpha + 64 * kBeta)) << p << " " << k;
    }
  }
}

TEST(Cost, RotatedDirectAllToAllKeepsAllPortsBusy) {
  for (int p = 2; p <= 12; ++p) {
    EXPECT_EQ(time_us(direct_all_to_all_plan(Kind::all_to_all, p), 16), (p - 1) * (kAlpha + 64 * kBeta)) << p;
  }
}

// All ranks send to rank 0, whose port receives one message at a time.
TEST(Cost, ManyToOneQueuesAtTheReceiver) {
  for (int p = 2; p <= 9; ++p) {
    PlanBuilder plan(Kind::gather, p, 0, 1);
    plan.copy(0, output(0), input(0));
    for (int r = 1; r < p; ++r) plan.transfer(r, 0, input(0), output(r));
    EXPECT_EQ(time_us(plan.finish("direct"), 16), (p - 1) * (kAlpha + 64 * kBeta));
  }
}

// Two lanes share the rank's port and its core, but one lane's messages are in flight while the other's sums are
// computed.
TEST(Cost, LanesOverlapReductionWithMessages) {
  const double chunk = 64;
  const double message = kAlpha + chunk * kBeta;
  const double one_lane = time_us(ring_plan(4, 1), 16 * 8);
  const double two_lanes = time_us(ring_plan(4, 2), 16 * 8);
  EXPECT_EQ(one_lane, 6 * (kAlpha + 2 * chunk * kBeta) + 3 * 2 * chunk * kGamma);
  EXPECT_EQ(two_lanes, 12 * message);  // all sums are hidden: the port is never idle
}

// A scatter to two ranks, one lane each: both have all their messages ready at once.
TEST(Cost, LanesTakeTurnsAtThePort) {
  const int k = 4;
  PlanBuilder builder(Kind::scatter, 3, 0, k);
  for (int c = 0; c < k; ++c) builder.copy(0, output(c), input(c));
  for (int to = 1; to < 3; ++to) {
    for (int c = 0; c < k; ++c) builder.transfer(0, to, input(to * k + c), output(c), to);
  }
  const Plan plan = builder.finish("lanes");
  const Contents contents = contents_of(plan, {k, false});
  collectives::Operation operation;
  operation.kind = Kind::scatter;
  operation.count = k;
  const Prediction prediction = predict(plan, contents, operation, {.alpha_us = 1});
  for (int to = 1; to < 3; ++to) {
    for (int c = 0; c < k; ++c) {
      const int send = contents.ids().id(0, to, c);
      EXPECT_EQ(prediction.spans[static_cast<std::size_t>(send)].begin_us, 2 * c + to - 1) << to << " " << c;
    }
  }
}

// Ranks 1 and 2 begin with rank 0, which serves rank 1 first. Rank 2's other lane need not wait for that: all ports are
// busy all the time.
TEST(Cost, BusyReceiverHoldsUpOneLaneOnly) {
  PlanBuilder plan(Kind::all_gather, 3, 0, 1);
  plan.transfer(1, 0, input(0), output(1), 0);
  plan.transfer(2, 0, input(0), output(2), 0);
  plan.transfer(1, 2, input(0), output(1), 0);
  plan.transfer(2, 1, input(0), output(2), 1);
  plan.transfer(0, 2, input(0), output(0), 1);
  plan.transfer(0, 1, input(0), output(0), 1);
  for (int r = 0; r < 3; ++r) plan.copy(r, output(r), input(0));
  EXPECT_EQ(time_us(plan.finish("crossed"), 16), 2 * (kAlpha + 64 * kBeta));
}

TEST(Cost, CopiesCostWhatTheModelSays) {
  CostModel model = kModel;
  model.copy_us_per_byte = 0.125;
  EXPECT_EQ(time_us(ring_plan(1), 16, model), 8);
}

TEST(Cost, ReductionsOfARankTakeTurns) {
  PlanBuilder plan(Kind::reduce, 1, 0, 2);
  plan.take_scratch(2);
  for (int lane = 0; lane < 2; ++lane) plan.copy(0, output(lane), input(lane), lane);
  CostModel model;
  model.copy_us_per_byte = 1;
  EXPECT_EQ(time_us(plan.finish("x"), 8, model), 32);
}

TEST(Cost, SpansSayWhenEachStepWorks) {
  const Plan plan = chain_plan(3, 0, 2);
  const Contents contents = contents_of(plan);
  collectives::Operation operation;
  operation.kind = Kind::broadcast;
  operation.count = 2;
  const Prediction prediction = predict(plan, contents, operation, {.alpha_us = 1});
  const auto span = [&](int rank, int step) {
    return prediction.spans[static_cast<std::size_t>(contents.ids().id(rank, 0, step))];
  };
  EXPECT_EQ(span(0, 1).begin_us, 0);  // copy, send, copy, send
  EXPECT_EQ(span(0, 3).begin_us, 1);
  EXPECT_EQ(span(1, 1).begin_us, 1);  // recv, send, recv, send
  EXPECT_EQ(span(1, 3).end_us, 3);
  EXPECT_EQ(span(2, 1).end_us, 3);
  EXPECT_EQ(prediction.time_us, 3);
}

}  // namespace
}  // namespace lockstep::plan
