#include "collectives/executors/program_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "collectives/algorithms/algorithm.h"
#include "collectives/executors/direct_executor.h"
#include "collectives/plan/cost.h"

namespace lockstep::executors {
namespace {

using collectives::Kind;
using collectives::Operation;

constexpr std::int64_t kLatencyNs = 2000;
constexpr transports::LinkSpec kLink{2, 1};  // one byte per ns

struct Case {
  plan::Plan plan;
  Operation operation;
  plan::Program program;
};

Case case_of(Kind kind, const std::string& algorithm, int ranks, std::int64_t count, const DirectOptions& options = {},
             bool in_place = false) {
  Case c{algorithms::make_plan(algorithms::parse_choice(kind, algorithm), ranks, 0), {}, {}};
  c.operation.kind = kind;
  c.operation.count = count;
  c.operation.in_place = in_place;
  c.program = lower_for_direct(c.plan, c.operation, options);
  return c;
}

std::int64_t play(const Case& c, std::int64_t cost_ns = 0, std::vector<std::int64_t> entered_ns = {}) {
  const ProgramTime time(c.program, 4);
  const auto ranks = static_cast<std::size_t>(c.program.num_ranks);
  entered_ns.resize(ranks, 0);
  const std::vector<std::int64_t> costs(time.num_costs(), cost_ns);
  std::vector<ProgramTime::RankClock> clocks;
  for (const std::int64_t entered : entered_ns) clocks.push_back({entered, costs.data()});
  std::vector<transports::LinkTable::Port> ports(ranks);
  transports::LinkTable links(kLink, ports.data());
  const auto leaves = time.play(
      clocks, [](int rank) { return rank; }, links);
  return *std::max_element(leaves.begin(), leaves.end());
}

constexpr DirectOptions kInPlaceWhole{.stage_below_bytes = 0, .segment_bytes = 1 << 30};
constexpr DirectOptions kInSegments{.stage_below_bytes = 0, .segment_bytes = 1024};

TEST(ProgramTime, RingIsTheClosedForm) {
  for (int p = 2; p <= 9; ++p) {
    const std::int64_t chunk_bytes = 4096;
    const Case c = case_of(Kind::all_reduce, "ring", p, p * chunk_bytes / 4, kInPlaceWhole);
    EXPECT_EQ(play(c), 2 * (p - 1) * (chunk_bytes + kLatencyNs)) << p;
  }
}

TEST(ProgramTime, TwoShotIsTheClosedFormWholeAndInSegments) {
  for (int p = 2; p <= 9; ++p) {
    const std::int64_t chunk_bytes = 16 << 10;
    const std::int64_t part_ns = (p - 1) * chunk_bytes + kLatencyNs;
    EXPECT_EQ(play(case_of(Kind::all_reduce, "two_shot", p, p * chunk_bytes / 4, kInPlaceWhole)), 2 * part_ns) << p;
    const std::int64_t segmented = play(case_of(Kind::all_reduce, "two_shot", p, p * chunk_bytes / 4, kInSegments));
    EXPECT_LT(segmented, 2 * part_ns) << p;
    EXPECT_GE(segmented, 2 * (p - 1) * chunk_bytes + kLatencyNs) << p;
  }
}

TEST(ProgramTime, ALateRankDelaysTheOthersByAsMuch) {
  const Case c = case_of(Kind::all_reduce, "ring", 4, 4096, kInPlaceWhole);
  EXPECT_EQ(play(c, 0, {0, 0, 50'000, 0}), 50'000 + play(c));
}

// Every rank of a ring computes p - 1 sums in sequence; its copies are messages that arrive.
TEST(ProgramTime, SumsCountAndLandingMessagesDoNot) {
  const Case reduce = case_of(Kind::all_reduce, "ring", 4, 4096, kInPlaceWhole);
  const ProgramTime time(reduce.program, 4);
  double own = 0;
  const plan::LaneProgram& lane = reduce.program.ranks[1].lanes[0];
  for (const plan::Instruction& i : lane.instructions) own += own_part(lane, i, 1) > 0 ? 1 : 0;
  EXPECT_EQ(own, 3);
}

// No schedule beats the ports, or the latencies of the plan's longest chain of messages, whichever rank stores what;
// with costs neither. (Costs may still make a call end earlier: messages then come in another order, and a port that
// serves them in order of arrival has the anomalies of Graham's list schedules: Bounds on multiprocessing timing
// anomalies, 1969.)
void expect_links_kept(const Case& c) {
  const auto counts = plan::count(c.plan, plan::contents_of(c.plan), c.operation);
  std::int64_t busiest = 0;
  for (const plan::RankCounts& rank : counts.ranks) {
    busiest = std::max({busiest, rank.bytes_sent, rank.bytes_received});
  }
  const std::string of = c.plan.algorithm + ", " + std::to_string(c.plan.num_ranks) + " ranks" +
                         (c.operation.in_place ? ", in place" : "");
  const std::int64_t least_ns = std::max(busiest > 0 ? busiest + kLatencyNs : 0, counts.steps * kLatencyNs);
  EXPECT_GE(play(c), least_ns) << of;
  EXPECT_GE(play(c, 100), least_ns) << of << ", with costs";
}

TEST(ProgramTime, EveryAlgorithmKeepsToTheLinksAndEnds) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    if (algorithm.kind == Kind::all_to_all_v) continue;
    for (int p : {2, 3, 4, 5, 8, 13}) {
      if (algorithms::refusal(algorithms::parse_choice(algorithm.kind, algorithm.name), p, 0)) continue;
      for (const DirectOptions& options : {DirectOptions{}, kInPlaceWhole, kInSegments}) {
        for (const bool in_place : {false, true}) {
          expect_links_kept(case_of(algorithm.kind, std::string(algorithm.name), p, 2048 * p, options, in_place));
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::executors
