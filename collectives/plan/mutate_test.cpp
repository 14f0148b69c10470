// Mutants of correct plans: the checker must reject all that change the result, in any order of running.
#include "collectives/plan/mutate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "collectives/plan/hand_made_plans.h"
#include "collectives/plan/interpret_slow.h"

namespace lockstep::plan {
namespace {

using collectives::Kind;

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
