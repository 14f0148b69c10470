#include "collectives/plan/check.h"

#include <algorithm>
#include <ctime>
#include <iostream>

#include <gtest/gtest.h>

#include "testing/core/thrown.h"
#include "testing/plans/plans.h"

namespace lockstep::plan {
namespace {

using collectives::Kind;

std::string problems_of(const Plan& plan, const CheckOptions& options = {}) {
  return check(plan, options).text();
}

void expect_problem(const Plan& plan, const std::string& part, const CheckOptions& options = {}) {
  EXPECT_TRUE(core::has(problems_of(plan, options), part))
      << "wanted: " << part << "\nfound: " << problems_of(plan, options);
}

// Two ranks exchange their one chunk; each test adds or changes the part that it is about.
PlanBuilder two_ranks(Kind kind = Kind::all_gather) {
  return {kind, 2, 0, 1};
}

TEST(Check, RingsOfAllSizes) {
  for (int n = 1; n <= 33; ++n) {
    for (const int capacity : {kReadInPlace, 1, 2}) {
      for (const bool in_place : {false, true}) {
        EXPECT_EQ(problems_of(ring_plan(n, 1 + n % 3), {capacity, in_place}), "ok") << n << " " << capacity;
      }
    }
  }
}

TEST(Check, OtherPlansOfAllSizes) {
  for (const int capacity : {kReadInPlace, 1}) {
    for (int n = 1; n <= 17; ++n) {
      for (int root = 0; root < n; ++root) EXPECT_EQ(problems_of(chain_plan(n, root, 3), {capacity, false}), "ok");
      EXPECT_EQ(problems_of(two_lane_plan(n), {capacity, false}), "ok") << n;
      EXPECT_EQ(problems_of(direct_all_to_all_plan(Kind::all_to_all, n, 2), {capacity, false}), "ok") << n;
      EXPECT_EQ(problems_of(direct_all_to_all_plan(Kind::all_to_all_v, n, 2), {capacity, false}), "ok") << n;
    }
    for (const int n : {1, 2, 4, 8, 16, 32}) EXPECT_EQ(problems_of(exchange_plan(n), {capacity, false}), "ok") << n;
  }
}

TEST(Check, LargePlansTakeSeconds) {
  const std::clock_t begin = std::clock();  // this process's time: other load does not count
  EXPECT_EQ(problems_of(ring_plan(128, 4)), "ok");
  EXPECT_EQ(problems_of(direct_all_to_all_plan(Kind::all_to_all, 128, 4)), "ok");
  EXPECT_EQ(problems_of(exchange_plan(128)), "ok");
  EXPECT_LT(std::clock() - begin, std::clock_t{30} * CLOCKS_PER_SEC);  // 0.2 s; sanitizers take 20 times that
}

TEST(Check, CapacityIsWhatSeparatesHalvingDoublingFromARing) {
  for (const int n : {2, 4, 8, 16}) {
    EXPECT_EQ(problems_of(halving_doubling_plan(n), {n / 2, false}), "ok");
    if (n > 2) expect_problem(halving_doubling_plan(n), "deadlock: waits for room in the channel", {n / 2 - 1, false});
  }
}

TEST(Check, InPlaceAllToAllOverwritesWhatItHasToSend) {
  EXPECT_FALSE(check(direct_all_to_all_plan(Kind::all_to_all, 3), {kReadInPlace, true}).ok());
  EXPECT_TRUE(check(direct_all_to_all_plan(Kind::all_to_all, 3), {1, true}).ok());  // sends were copied before
}

// Both sums would be written to memory that the peer has yet to read.
TEST(Check, ReadingInPlaceFindsAnExchangeThatNeedsABuffer) {
  PlanBuilder plan = two_ranks(Kind::all_reduce);
  for (int r = 0; r < 2; ++r) {
    plan.copy(r, output(0), input(0));
    plan.send(r, 1 - r, output(0));
    plan.recv_reduce(r, 1 - r, output(0), output(0));
  }
  const Plan exchange = plan.finish("x");
  EXPECT_TRUE(check(exchange, {1, false}).ok());
  expect_problem(exchange,
                 "rank 0 lane 0 step 2: recv_reduce output[0] <- 1 + output[0]: deadlock: waits for memory that it "
                 "writes to be read by rank 1 lane 0 step 2 (recv_reduce)",
                 {kReadInPlace, false});
}

TEST(Check, ReadingInPlaceHoldsBackAWriterUntilTheReaderCame) {
  PlanBuilder plan(Kind::send_recv, 2, 0, 1);
  plan.take_scratch(1);
  for (int r = 0; r < 2; ++r) {
    plan.copy(r, scratch(0), input(0));
    plan.send(r, 1 - r, scratch(0));
    plan.recv(r, 1 - r, output(0));
    plan.copy(r, scratch(0), output(0));  // waits for the peer's recv, which happens
  }
  EXPECT_EQ(problems_of(plan.finish("x"), {kReadInPlace, false}), "ok");
}

TEST(Check, ContributionsThatCountTwice) {
  Plan plan = ring_plan(3);
  plan.ranks[1].lanes[0][6].src = output(1);
  Step again = plan.ranks[0].lanes[0][1];
  again = {Op::reduce, -1, input(2), output(2), {}};
  plan.ranks[0].lanes[0].insert(plan.ranks[0].lanes[0].begin() + 2, again);
  expect_problem(plan,
                 "rank 0 lane 0 step 2: reduce output[2] += input[2]: reduces chunk 2 summed over ranks 0,2 with chunk "
                 "2 summed over ranks 0: a contribution would count twice");
}

TEST(Check, DifferentChunksAreNotSummed) {
  Plan plan = ring_plan(3);
  plan.ranks[0].lanes[0][1].src = input(1);
  expect_problem(plan, "these are different chunks");
}

TEST(Check, WrongOutputsAreSaidWithWhatIsThere) {
  PlanBuilder plan(Kind::all_gather, 2, 0, 1);
  for (int r = 0; r < 2; ++r) {
    plan.copy(r, output(1 - r), input(0));
    plan.send(r, 1 - r, input(0));
    plan.recv(r, 1 - r, output(r));
  }
  expect_problem(plan.finish("x"),
                 "rank 0: output[0] ends as chunk 0 of rank 1's input, expected chunk 0 of rank 0's input");
  PlanBuilder nothing(Kind::broadcast, 2, 0, 1);
  nothing.copy(0, output(0), input(0));
  expect_problem(nothing.finish("x"), "rank 1: output[0] ends as nothing, expected chunk 0 of rank 0's input");
}

TEST(Check, NothingIsReadBeforeItIsWritten) {
  PlanBuilder plan = two_ranks();
  plan.send(0, 1, output(1));
  plan.recv(1, 0, output(0));
  expect_problem(plan.finish("x"), "rank 0 lane 0 step 0: send output[1] -> 1: reads output[1], to which nothing was");
}

TEST(Check, InputStaysAsItIs) {
  PlanBuilder plan = two_ranks(Kind::all_reduce);
  plan.send(0, 1, input(0));
  plan.recv_reduce(1, 0, input(0), input(0));
  const Plan bad = plan.finish("x");
  expect_problem(bad, "writes input[0], which must stay as it is");
  expect_problem(bad, "output[0] ends as", {1, true});  // in place it is the output: only the content is wrong
}

TEST(Check, SlicesStayInTheirBuffers) {
  PlanBuilder plan = two_ranks();
  plan.copy(0, output(1, 2), input(0, 2));
  plan.copy(0, output(-1), scratch(0));
  plan.copy(1, output(0, 0), input(0, 0));
  const Plan bad = plan.finish("x");
  expect_problem(bad, "reads chunks 0 to 1 of input, which has 1 on this rank");
  expect_problem(bad, "writes chunks 1 to 2 of output, which has 2 on this rank");
  expect_problem(bad, "writes chunks -1 to -1 of output");
  expect_problem(bad, "reads chunks 0 to 0 of scratch, which has 0");
  expect_problem(bad, "reads 0 chunks, must be at least 1");
}

TEST(Check, RanksWithoutABufferHaveNone) {
  PlanBuilder plan(Kind::reduce, 2, 0, 1);
  plan.copy(1, output(0), input(0));
  expect_problem(plan.finish("x"), "writes chunks 0 to 0 of output, which has 0 on this rank");
}

TEST(Check, MessagesHaveTwoEndsOfOneSize) {
  PlanBuilder lonely = two_ranks();
  lonely.send(0, 1, input(0));
  lonely.recv(0, 1, output(1), 1);
  const Plan bad = lonely.finish("x");
  expect_problem(bad, "send input[0] -> 1: no recv at rank 1 in this lane matches it (message 0 of its channel)");
  expect_problem(bad, "recv output[1] <- 1: no send at rank 1 in this lane matches it");
  PlanBuilder uneven(Kind::all_gather, 2, 0, 2);
  uneven.send(0, 1, input(0, 2));
  uneven.recv(1, 0, output(0));
  expect_problem(uneven.finish("x"), "receives 1 chunks, but rank 0 lane 0 step 0 sends 2");
  PlanBuilder self = two_ranks();
  self.send(0, 0, input(0));
  self.send(1, 2, input(0));
  const Plan odd = self.finish("x");
  expect_problem(odd, "peer is the rank itself");
  expect_problem(odd, "peer 2 is not in 0..1");
}

TEST(Check, RefusesReductionsWhereTheCollectiveHasNone) {
  PlanBuilder plan = two_ranks();
  plan.reduce(0, output(0), input(0));
  expect_problem(plan.finish("x"), "reduce reduces, but all_gather has no reduction");
}

TEST(Check, SrcAndDstOfAStepDoNotOverlapHalfway) {
  PlanBuilder plan(Kind::send_recv, 1, 0, 2);
  plan.take_scratch(3);
  plan.copy(0, scratch(0, 2), input(0, 2));
  plan.copy(0, scratch(1, 2), scratch(0, 2));
  plan.copy(0, output(0, 2), scratch(1, 2));
  expect_problem(plan.finish("x"), "src and dst overlap without being the same");
}

TEST(Check, DeadlockSaysWhoWaitsForWhat) {
  Plan plan = ring_plan(3);
  for (RankSteps& rank : plan.ranks) std::swap(rank.lanes[0][0], rank.lanes[0][1]);
  expect_problem(plan,
                 "rank 2 lane 0 step 0: recv_reduce output[1] <- 1 + input[1]: deadlock: waits for rank 1 lane 0 step "
                 "1 (send)");
}

TEST(Check, LanesThatRaceAreFound) {
  Plan late = two_lane_plan(3);
  late.ranks[2].lanes[1][1].after = {};
  expect_problem(late,
                 "rank 2 lane 1 step 1: reduce output[0] += scratch[0]: reads scratch[0], which lane 0 step 2 writes, "
                 "and no `after` orders the two (race)");
  Plan early = two_lane_plan(3);
  early.ranks[1].lanes[0][3].after = {};
  expect_problem(early, "race");
}

// Lane 2 may read although it waits for lane 1 only, because lane 1 waited for lane 0.
TEST(Check, AfterIsTransitive) {
  PlanBuilder plan(Kind::all_reduce, 1, 0, 1);
  plan.take_scratch(2);
  plan.copy(0, scratch(0), input(0), 0);
  plan.copy(0, scratch(1), input(0), 1, {0, 0});
  plan.copy(0, output(0), scratch(0), 2, {1, 0});
  EXPECT_EQ(problems_of(plan.finish("x")), "ok");
}

TEST(Check, AMessageBetweenLanesOrdersNothing) {
  PlanBuilder plan(Kind::all_gather, 2, 0, 1);
  for (int r = 0; r < 2; ++r) {
    plan.copy(r, output(r), input(0), 0);
    plan.send(r, 1 - r, output(r), 0);
    plan.recv(r, 1 - r, output(1 - r), 0);
    plan.copy(r, output(r), input(0), 1);  // would hold the same, but the time of this copy is undefined
  }
  expect_problem(plan.finish("x"), "race");
}

TEST(Check, AfterMustNameAStepOfAnotherLane) {
  Plan plan = two_lane_plan(3);
  plan.ranks[0].lanes[1][1].after = {{2, 0}};
  expect_problem(plan, "waits (after) for lane 2 step 0, which does not exist");
  plan.ranks[0].lanes[1][1].after = {{0, 9}};
  expect_problem(plan, "waits (after) for lane 0 step 9, which does not exist");
  plan.ranks[0].lanes[1][1].after = {{1, 0}};
  expect_problem(plan, "waits (after) for its own lane");
}

TEST(Check, AfterInACycleIsADeadlock) {
  Plan plan = two_lane_plan(3);
  plan.ranks[0].lanes[0][0].after = {{1, 2}};
  expect_problem(plan, "deadlock: waits (after) for lane 1 step 2, in a cycle");
}

// With 3 elements in 2 chunks, chunk 1 does not fit into the place of chunk 0.
TEST(Check, OutputPlacesHoldOnlyChunksOfTheirSize) {
  PlanBuilder plan(Kind::all_reduce, 1, 0, 2);
  plan.take_scratch(1);
  plan.copy(0, output(0), input(1));
  plan.copy(0, scratch(0), output(0));
  plan.copy(0, output(0), input(0));
  plan.copy(0, output(1), scratch(0));
  expect_problem(plan.finish("x"),
                 "writes chunk 1 summed over all ranks into output[0], whose size is that of chunk 0");
  PlanBuilder rotated(Kind::all_to_all_v, 2, 0, 1);
  rotated.copy(0, output(0), input(1));
  expect_problem(rotated.finish("x"), "writes chunk 1 of rank 0's input into output[0], whose size is that of chunk 0");
}

TEST(Check, BadShapes) {
  Plan plan = ring_plan(2);
  plan.root = 2;
  plan.scratch_chunks = -1;
  expect_problem(plan, "root 2 is not in 0..1");
  expect_problem(plan, "scratch_chunks must not be negative");
  plan = ring_plan(2);
  plan.ranks.pop_back();
  expect_problem(plan, "has steps for 1 ranks, num_ranks is 2");
  expect_problem(ring_plan(2), "capacity is -1", {-1, false});
  expect_problem(Plan{}, "num_ranks is 0");
}

TEST(Check, ContentsSayWhatEveryStepMoves) {
  const Contents ring = contents_of(ring_plan(3));
  EXPECT_EQ(ring.at(0, 0, 0, 0), (Moved{-1, 0, false}));  // send input[0]
  EXPECT_EQ(ring.at(0, 0, 1, 0), (Moved{-1, 2, false}));  // two of three ranks
  EXPECT_EQ(ring.at(0, 0, 3, 0), (Moved{-1, 1, true}));   // an average divides here
  const Contents chain = contents_of(chain_plan(3, 1, 2));
  EXPECT_EQ(chain.at(0, 0, 1, 0), (Moved{1, 1, true}));
  EXPECT_THROW(contents_of(Plan{}), std::exception);
}

// Mutants of correct plans: the checker must reject all that change the result, in any order of running.

constexpr std::uint64_t kSeed = 20260101;

struct Subject {
  Plan plan;
  CheckOptions options;
};

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const int capacity : {kReadInPlace, 1, 2}) {
    all.push_back({ring_plan(3), {capacity, false}});
    all.push_back({ring_plan(4), {capacity, true}});
    all.push_back({ring_plan(2, 2), {capacity, false}});
    all.push_back({two_lane_plan(2), {capacity, false}});
    all.push_back({two_lane_plan(4), {capacity, false}});
    all.push_back({chain_plan(4, 1, 3), {capacity, false}});
    all.push_back({chain_plan(3, 2, 2), {capacity, true}});
    all.push_back({exchange_plan(4), {capacity, false}});
    all.push_back({direct_all_to_all_plan(Kind::all_to_all, 3, 2), {capacity, false}});
    all.push_back({direct_all_to_all_plan(Kind::all_to_all_v, 4), {capacity, false}});
    if (capacity == 2) all.push_back({halving_doubling_plan(4), {capacity, false}});
  }
  return all;
}

std::string label(const Subject& subject) {
  return subject.plan.algorithm + " of " + std::to_string(subject.plan.num_ranks) + " ranks, capacity " +
         std::to_string(subject.options.capacity) + (subject.options.in_place ? ", in place" : "");
}

TEST(Mutate, TheSlowEngineAgreesThatThePlansAreRight) {
  for (const Subject& subject : subjects()) {
    EXPECT_EQ(check(subject.plan, subject.options).text(), "ok") << label(subject);
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      EXPECT_EQ(interpret_slow(subject.plan, subject.options, seed), "") << label(subject) << ", seed " << seed;
    }
  }
}

TEST(Mutate, AllThatDoHarmAreRejected) {
  MutantTally all;
  for (const Subject& subject : subjects()) {
    const MutantTally tally = tally_mutants(subject.plan, subject.options, 40, kSeed);
    for (const std::string& missed : tally.missed) ADD_FAILURE() << label(subject) << ": accepted: " << missed;
    EXPECT_GT(tally.harmful, 20) << label(subject);
    std::cout << label(subject) << ": " << tally.mutants << " mutants, " << tally.harmful << " do harm, "
              << tally.rejected << " rejected\n";
    all.mutants += tally.mutants;
    all.harmful += tally.harmful;
    all.rejected += tally.rejected;
  }
  std::cout << "all: " << all.mutants << " mutants, " << all.harmful << " do harm, " << all.rejected
            << " rejected (seed " << kSeed << ")\n";
  EXPECT_GT(all.mutants, 5000);
  EXPECT_GT(all.harmful, 4500);
  EXPECT_LT(all.rejected, all.mutants);  // some mutants are right, and the checker accepts them
}

TEST(Mutate, EveryKindOfEditIsMade) {
  std::vector<std::string> kinds;
  for (const Plan& plan : {two_lane_plan(3), ring_plan(3)}) {
    for_each_mutant(plan, [&](const Mutant& mutant) {
      EXPECT_NE(mutant.plan, plan) << mutant.what;
      kinds.push_back(mutant.what.substr(mutant.what.rfind(": ") + 2));
    });
  }
  for (const char* kind :
       {"reads another chunk", "writes another chunk", "another count", "reads another buffer", "writes another buffer",
        "another peer", "recv_reduce for recv", "recv for recv_reduce", "reduce for copy", "copy for reduce", "dropped",
        "without its after", "swapped with the next"}) {
    EXPECT_NE(std::find(kinds.begin(), kinds.end(), kind), kinds.end()) << kind;
  }
}

// The slow engine finds a race only in some orders: this is why the checker has vector clocks.
TEST(Mutate, SomeOrdersShowARaceAndSomeDoNot) {
  Plan plan = two_lane_plan(3);
  plan.ranks[1].lanes[0][3].after = {};
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) wrong += interpret_slow(plan, {1, false}, seed).empty() ? 0 : 1;
  EXPECT_GT(wrong, 0);
  EXPECT_LT(wrong, 200);
  EXPECT_FALSE(check(plan).ok());
}

TEST(InterpretSlow, SaysWhatIsWrong) {
  Plan plan = ring_plan(3);
  plan.ranks[0].lanes[0].pop_back();
  EXPECT_EQ(interpret_slow(plan, {1, false}, 1), "wrong output");
  plan = ring_plan(3);
  plan.ranks[0].lanes[0].erase(plan.ranks[0].lanes[0].begin());
  EXPECT_NE(interpret_slow(plan, {1, false}, 1), "");
  EXPECT_EQ(interpret_slow(halving_doubling_plan(8), {3, false}, 1), "deadlock");
  EXPECT_EQ(interpret_slow(halving_doubling_plan(8), {4, false}, 1), "");
}

}  // namespace
}  // namespace lockstep::plan
