// A slow engine runs programs one instruction at a time, in random orders or as unfairly as possible, with ranks
// entering late. If the waits leave two instructions unordered that access the same bytes, some order gives a different
// result.
#include "collectives/executors/executors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/executors/program_time.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/program.h"
#include "collectives/plan/text.h"
#include "kernels/reduce/reduce.h"
#include "testing/collectives/executor_cases.h"

namespace lockstep::executors {
namespace {

using collectives::Kind;
using collectives::Operation;
using plan::Buffer;
using plan::Instruction;
using plan::LaneProgram;
using plan::Program;
using plan::RankAddress;

enum class Order { random, first_ranks_first, last_ranks_first };

// All ranks' memory in one place.
class SlowEngine {
 public:
  SlowEngine(const Program& program, const Operation& operation, int num_ranks)
      : program_(program),
        operation_(operation),
        verifier_(collectives::verifier_for_tests(operation, num_ranks)),
        ranks_(num_ranks) {
    for (int rank = 0; rank < num_ranks; ++rank) add_rank(rank);
  }

  // Returns the number of wrong elements at the end; -1 if it does not end.
  std::int64_t run(Order order, std::mt19937& random) {
    for (std::vector<Move> moves = possible_moves(); !moves.empty(); moves = possible_moves()) {
      std::size_t pick = 0;
      if (order == Order::random) pick = random() % moves.size();
      if (order == Order::last_ranks_first) pick = moves.size() - 1;
      make(moves[pick]);
    }
    for (std::size_t r = 0; r < done_.size(); ++r) {
      for (std::size_t l = 0; l < done_[r].size(); ++l) {
        if (done_[r][l] != program_.ranks[r].lanes[l].instructions.size()) return -1;
      }
    }
    std::int64_t wrong = 0;
    for (int rank = 0; rank < ranks_; ++rank) wrong += verifier_.count_wrong(rank, 0, base(rank, Buffer::output));
    return wrong;
  }

 private:
  struct Move {
    int rank;
    int lane;  // -1: enters
  };

  void add_rank(int rank) {
    const auto layout = in_place_layout(operation_, ranks_, rank);
    const auto input_size = static_cast<std::size_t>(input_bytes(operation_, ranks_, rank));
    const auto output_size = static_cast<std::size_t>(output_bytes(operation_, ranks_, rank));
    memory_.emplace_back();
    if (operation_.in_place) {
      memory_.back().resize(static_cast<std::size_t>(layout.buffer_bytes));
      input_at_.push_back(static_cast<std::size_t>(layout.input_at));
      output_at_.push_back(static_cast<std::size_t>(layout.output_at));
    } else {
      memory_.back().resize(input_size + output_size);
      input_at_.push_back(0);
      output_at_.push_back(input_size);
    }
    scratch_.emplace_back(static_cast<std::size_t>(program_.scratch_bytes));
    verifier_.fill_poison(rank, 0, base(rank, Buffer::output));
    verifier_.fill_input(rank, 0, base(rank, Buffer::input));
    done_.emplace_back(program_.ranks[static_cast<std::size_t>(rank)].lanes.size());
    entered_.push_back(false);
  }

  std::byte* base(int rank, Buffer buffer) {
    const auto r = static_cast<std::size_t>(rank);
    if (buffer == Buffer::scratch) return scratch_[r].data();
    return memory_[r].data() + (buffer == Buffer::input ? input_at_[r] : output_at_[r]);
  }

  bool ready(int rank, int lane) const {
    const auto r = static_cast<std::size_t>(rank);
    const LaneProgram& program = program_.ranks[r].lanes[static_cast<std::size_t>(lane)];
    const std::size_t next = done_[r][static_cast<std::size_t>(lane)];
    if (!entered_[r] || next == program.instructions.size()) return false;
    const auto waits = program.waits_of(program.instructions[next]);
    return std::all_of(waits.begin(), waits.end(), [this](const plan::Wait& wait) {
      const auto peer = static_cast<std::size_t>(wait.rank);
      return entered_[peer] && done_[peer][static_cast<std::size_t>(wait.lane)] >= wait.instructions;
    });
  }

  std::vector<Move> possible_moves() const {
    std::vector<Move> moves;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!entered_[static_cast<std::size_t>(rank)]) moves.push_back({rank, -1});
      for (int lane = 0; lane < program_.num_lanes; ++lane) {
        if (ready(rank, lane)) moves.push_back({rank, lane});
      }
    }
    return moves;
  }

  void make(const Move& move) {
    const auto r = static_cast<std::size_t>(move.rank);
    if (move.lane < 0) {
      entered_[r] = true;
      return;
    }
    const LaneProgram& lane = program_.ranks[r].lanes[static_cast<std::size_t>(move.lane)];
    const Instruction& instruction = lane.instructions[done_[r][static_cast<std::size_t>(move.lane)]++];
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    for (const RankAddress& p : lane.sources_of(instruction))
      sources.push_back(base(p.rank, p.buffer) + p.offset_bytes);
    for (const RankAddress& p : lane.destinations_of(instruction)) {
      destinations.push_back(base(p.rank, p.buffer) + p.offset_bytes);
    }
    const int average = instruction.completes && operation_.op == core::ReduceOp::avg ? ranks_ : 0;
    if (destinations.empty() || instruction.count == 0) return;
    kernels::reduce({operation_.dtype, operation_.op, destinations, sources, instruction.count, average});
  }

  const Program& program_;
  const Operation& operation_;
  const collectives::Verifier verifier_;
  const int ranks_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::vector<std::byte>> scratch_;
  std::vector<std::size_t> input_at_;
  std::vector<std::size_t> output_at_;
  std::vector<std::vector<std::uint32_t>> done_;
  std::vector<bool> entered_;
};

void expect_right_in_all_orders(const Program& program, const Operation& operation, int ranks,
                                const std::string& what) {
  std::mt19937 random(static_cast<unsigned>(ranks));
  for (Order order : {Order::first_ranks_first, Order::last_ranks_first, Order::random, Order::random}) {
    const std::int64_t wrong = SlowEngine(program, operation, ranks).run(order, random);
    ASSERT_EQ(wrong, 0) << what << (operation.in_place ? " in place" : "") << ", order " << static_cast<int>(order);
  }
}

plan::Plan as_it_is(const plan::Plan& plan) {
  return plan;
}

// With lanes whose steps wait for several of other lanes, and stand in another order.
plan::Plan through_msccl_xml(const plan::Plan& plan) {
  return plan.kind == collectives::Kind::send_recv ? plan : plan::parse_msccl(plan::to_msccl(plan));
}

void check_algorithm(const algorithms::Algorithm& algorithm, int ranks, const DirectOptions& options,
                     plan::Plan (*changed)(const plan::Plan&) = as_it_is) {
  const algorithms::Choice choice = algorithms::parse_choice(algorithm.kind, algorithm.name);
  if (algorithms::refusal(choice, ranks, 0) || algorithm.kind == collectives::Kind::all_to_all_v) return;
  for (int root : {0, ranks - 1}) {
    if (root > 0 && !collectives::has_root(algorithm.kind)) continue;
    const plan::Plan plan = changed(algorithms::make_plan(choice, ranks, root));
    for (bool in_place : {false, true}) {
      const Operation operation{plan.kind, 1003, core::DType::f32, core::ReduceOp::avg, root, in_place, nullptr};
      const Program program = lower_for_direct(plan, operation, options);
      const std::string what = std::string(name_of(algorithm.kind)) + " " + plan.algorithm + " at " +
                               std::to_string(ranks) + " ranks, root " + std::to_string(root);
      expect_right_in_all_orders(program, operation, ranks, what);
    }
  }
}

TEST(DirectLowering, GivesTheSameResultInEveryOrder) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
      check_algorithm(algorithm, ranks, {.stage_below_bytes = 0, .segment_bytes = 128});  // in place reads, segments
      check_algorithm(algorithm, ranks, {.stage_below_bytes = 1 << 20, .segment_bytes = 256});  // staged
    }
  }
}

TEST(DirectLowering, GivesTheSameResultInEveryOrderWithPlansOfMscclXml) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    for (int ranks : {3, 4}) {
      check_algorithm(algorithm, ranks, {.stage_below_bytes = 0, .segment_bytes = 128}, through_msccl_xml);
      check_algorithm(algorithm, ranks, {.stage_below_bytes = 1 << 20, .segment_bytes = 256}, through_msccl_xml);
    }
  }
}

// Tests the engine itself: a program without its waits must give wrong results.
TEST(DirectLowering, AProgramWithoutWaitsIsFoundOut) {
  const algorithms::Choice ring = algorithms::parse_choice(collectives::Kind::all_reduce, "ring");
  const Operation operation{
      collectives::Kind::all_reduce, 1003, core::DType::f32, core::ReduceOp::sum, 0, false, nullptr};
  Program program = lower_for_direct(algorithms::make_plan(ring, 4, 0), operation, {.stage_below_bytes = 0});
  for (auto& rank : program.ranks) {
    for (auto& lane : rank.lanes) {
      for (auto& instruction : lane.instructions) instruction.num_waits = 0;
    }
  }
  std::mt19937 random(1);
  EXPECT_GT(SlowEngine(program, operation, 4).run(Order::first_ranks_first, random), 0);
}

// A two-shot all-reduce of large messages is one pass per rank: p sources, p destinations, and waits for the other
// ranks'.
TEST(DirectLowering, TwoShotBecomesOnePassARank) {
  const algorithms::Choice choice = algorithms::parse_choice(collectives::Kind::all_reduce, "two_shot");
  const Operation operation{
      collectives::Kind::all_reduce, 4000, core::DType::f32, core::ReduceOp::sum, 0, false, nullptr};
  const Program program = lower_for_direct(algorithms::make_plan(choice, 4, 0), operation, {.stage_below_bytes = 0});
  for (const auto& rank : program.ranks) {
    ASSERT_EQ(rank.lanes.size(), 1U);
    int passes = 0;
    for (const Instruction& instruction : rank.lanes[0].instructions) {
      if (instruction.num_destinations == 0) continue;
      ++passes;
      EXPECT_EQ(instruction.num_sources, 4U);
      EXPECT_EQ(instruction.num_destinations, 4U);
    }
    EXPECT_EQ(passes, 1);
  }
}

constexpr std::int64_t kLatencyNs = 2000;
constexpr transports::LinkSpec kLink{2, 1};  // one byte per ns

struct TimedPlan {
  plan::Plan plan;
  Operation operation;
  plan::Program program;
};

TimedPlan case_of(Kind kind, const std::string& algorithm, int ranks, std::int64_t count,
                  const DirectOptions& options = {}, bool in_place = false) {
  TimedPlan c{algorithms::make_plan(algorithms::parse_choice(kind, algorithm), ranks, 0), {}, {}};
  c.operation.kind = kind;
  c.operation.count = count;
  c.operation.in_place = in_place;
  c.program = lower_for_direct(c.plan, c.operation, options);
  return c;
}

std::int64_t play(const TimedPlan& c, std::int64_t cost_ns = 0, std::vector<std::int64_t> entered_ns = {}) {
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
    const TimedPlan c = case_of(Kind::all_reduce, "ring", p, p * chunk_bytes / 4, kInPlaceWhole);
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
  const TimedPlan c = case_of(Kind::all_reduce, "ring", 4, 4096, kInPlaceWhole);
  EXPECT_EQ(play(c, 0, {0, 0, 50'000, 0}), 50'000 + play(c));
}

// Every rank of a ring computes p - 1 sums in sequence; its copies are messages that arrive.
TEST(ProgramTime, SumsCountAndLandingMessagesDoNot) {
  const TimedPlan reduce = case_of(Kind::all_reduce, "ring", 4, 4096, kInPlaceWhole);
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
void expect_links_kept(const TimedPlan& c) {
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
