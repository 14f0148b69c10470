// The checker rejects every mutant of an algorithm, a plan with one wrong chunk, peer, operation, count or order, for
// which some timing gives a wrong result.
#include <gtest/gtest.h>

#include "testing/collectives/every_choice.h"
#include "testing/plans/plans.h"

namespace lockstep::algorithms {
namespace {

// The number of mutants is the steps times the ranks: the default number of pipelined chunks would only repeat them.
bool has_few_steps(const Choice& choice) {
  const auto chunks = choice.options.find("chunks");
  const auto lanes = choice.options.find("lanes");
  return (chunks == choice.options.end() || chunks->second <= 2) &&
         (lanes == choice.options.end() || lanes->second <= 2);
}

class Mutants : public testing::TestWithParam<int> {};

TEST_P(Mutants, HarmfulOnesAreRejected) {
  const int num_ranks = GetParam();
  constexpr int kOrders = 4;
  constexpr std::uint64_t kSeed = 20252506;
  for (const Choice& choice : every_choice()) {
    if (refusal(choice, num_ranks, 0) || !has_few_steps(choice)) continue;
    const int root = collectives::has_root(choice.algorithm->kind) ? num_ranks - 1 : 0;
    for (const int capacity : {1, plan::kReadInPlace}) {
      const plan::MutantTally tally =
          plan::tally_mutants(make_plan(choice, num_ranks, root), {.capacity = capacity}, kOrders, kSeed);
      EXPECT_TRUE(tally.missed.empty()) << title(choice) << ", " << num_ranks << " ranks, capacity " << capacity
                                        << ", seed " << kSeed << ": " << tally.missed.front();
      EXPECT_GT(tally.harmful, tally.mutants / 2) << title(choice);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mutants, testing::Values(2, 3, 4, 5));

}  // namespace
}  // namespace lockstep::algorithms
