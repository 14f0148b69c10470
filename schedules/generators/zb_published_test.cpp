// Table 5 of Qi et al. 2023 (Zero Bubble Pipeline Parallelism, arXiv:2401.10241): bubble rates of the schedules that
// their search finds for ZB-1p and ZB-2p, from the times of table 9 and the models of table 3 (1,024 tokens per
// sequence).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "schedules/check.h"
#include "schedules/count.h"
#include "schedules/generators/zb_search.h"

namespace lockstep::schedules {
namespace {

struct Row {
  PipelineShape shape;
  Times times_ms;
  double hidden;
  double heads;
  double zb_1p;  // (cost - m (f + i + w)) / cost; cost: the largest own span
  double zb_2p;
};
constexpr std::array kRows{
    Row{{8, 24, 1}, {18.522, 18.086, 9.337, 0.601}, 2304, 24, 0.1585, 0.0433},
    Row{{8, 32, 1}, {18.513, 18.086, 9.331, 0.626}, 2304, 24, 0.1242, 0.0039},
    Row{{8, 64, 1}, {18.546, 18.097, 9.321, 0.762}, 2304, 24, 0.0674, 0.0026},
    Row{{8, 24, 1}, {29.718, 29.444, 19.927, 0.527}, 4096, 32, 0.1323, 0.0029},
    Row{{8, 32, 1}, {29.802, 29.428, 19.530, 0.577}, 4096, 32, 0.1045, 0.0022},
    Row{{8, 64, 1}, {29.935, 29.621, 19.388, 0.535}, 4096, 32, 0.0554, 0.0010},
    Row{{16, 48, 1}, {11.347, 11.248, 8.132, 0.377}, 5120, 40, 0.1397, 0.0066},
    Row{{16, 64, 1}, {11.307, 11.254, 8.101, 0.379}, 5120, 40, 0.1088, 0.0054},
    Row{{16, 128, 1}, {11.325, 11.308, 8.109, 0.378}, 5120, 40, 0.0576, 0.0028},
    Row{{32, 96, 1}, {10.419, 10.207, 7.715, 0.408}, 6144, 48, 0.1421, 0.0038},
    Row{{32, 128, 1}, {10.408, 10.204, 7.703, 0.408}, 6144, 48, 0.1106, 0.0029},
    Row{{32, 256, 1}, {10.402, 10.248, 7.698, 0.460}, 6144, 48, 0.0594, 0.0018},
};

// Table 1: a layer's weight gradients need 32 s b h bytes of the s b (34 h + 5 a s) that its forward kept.
double w_share_of(const Row& row) {
  constexpr double kTokens = 1024;
  return 32 * row.hidden / (34 * row.hidden + 5 * row.heads * kTokens);
}

struct Found {
  double bubble;
  double bound;
};

// The search with memory for `multiple` times p microbatches.
Found found(const Row& row, int multiple) {
  const MemoryLimit memory{static_cast<double>(multiple * row.shape.ranks), w_share_of(row)};
  const Schedule made = zb_search({row.shape, row.times_ms, memory});
  EXPECT_NO_THROW(check_or_throw(made));
  double peak = 0;
  for (const RankCounts& rank : count_ranks(made, memory.w_share)) {
    peak = std::max(peak, rank.peak.until_weight_gradient);
  }
  EXPECT_LE(peak, memory.most + 1e-9);
  const Spans spans = spans_of(made, row.times_ms, play(made, row.times_ms));
  const auto bubble = [&](double own) { return (own - spans.work) / own; };
  return {bubble(spans.own), bubble(least_own_span(row.shape, row.times_ms, memory))};
}

void print(const Row& row, int multiple, double published, const Found& found) {
  std::printf(
      "p %2d, m %3d, ZB-%dp: bubble of own span published %5.2f %%, found %6.3f %%, no schedule below %6.3f %%\n",
      row.shape.ranks, row.shape.microbatches, multiple, 100 * published, 100 * found.bubble, 100 * found.bound);
}

TEST(ZbPublished, ZB1pIsAsPublishedToItsFourDigits) {
  for (const Row& row : kRows) {
    const Found mine = found(row, 1);
    print(row, 1, row.zb_1p, mine);
    EXPECT_NEAR(mine.bubble, row.zb_1p, 0.5e-4 + 1e-9);
  }
}

TEST(ZbPublished, ZB2pIsNeverWorseThanPublished) {
  for (const Row& row : kRows) {
    const Found mine = found(row, 2);
    print(row, 2, row.zb_2p, mine);
    EXPECT_LE(mine.bubble, row.zb_2p + 0.5e-4);
  }
}

// All 24 are proved optimal by the bound.
TEST(ZbPublished, NoScheduleOfThatMemoryIsBetter) {
  for (const Row& row : kRows) {
    for (const int multiple : {1, 2}) {
      const Found mine = found(row, multiple);
      EXPECT_NEAR(mine.bubble, mine.bound, 1e-6) << row.shape.ranks << " " << row.shape.microbatches;
    }
  }
}

// The memory model matters: whole activations until W more than double the bubble.
TEST(ZbPublished, WholeActivationsUntilWAreMoreThanThePaperCounts) {
  const Row& row = kRows[0];
  const Schedule made = zb_search({row.shape, row.times_ms, {16, 1}});
  const Spans spans = spans_of(made, row.times_ms, play(made, row.times_ms));
  EXPECT_GT((spans.own - spans.work) / spans.own, 2 * row.zb_2p);
}

}  // namespace
}  // namespace lockstep::schedules
