// The checker proves every algorithm: small numbers of ranks one by one, larger ones by example.
#include <gtest/gtest.h>

#include "collectives/algorithms/every_choice.h"
#include "collectives/plan/check.h"
#include "collectives/plan/text.h"

namespace lockstep::algorithms {
namespace {

// Proves each with one message at a time per channel, and with peers reading each other's memory in place.
void prove(const Choice& choice, int num_ranks, int& proved) {
  if (refusal(choice, num_ranks, 0)) return;
  for (const int root : roots_to_try(choice.algorithm->kind, num_ranks)) {
    const plan::Plan plan = make_plan(choice, num_ranks, root);
    for (const int capacity : {1, plan::kReadInPlace}) {
      const plan::CheckResult result = plan::check(plan, {.capacity = capacity});
      ASSERT_TRUE(result.ok()) << title(choice) << ", " << num_ranks << " ranks, root " << root << ", capacity "
                               << capacity << ":\n"
                               << result.text();
      ++proved;
    }
  }
}

TEST(Proof, EveryChoiceFor1To33Ranks) {
  int proved = 0;
  for (const Choice& choice : every_choice()) {
    for (int num_ranks = 1; num_ranks <= 33; ++num_ranks) {
      prove(choice, num_ranks, proved);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(proved, 5000);
  RecordProperty("proved", proved);
}

TEST(Proof, EveryChoiceFor64And100And128Ranks) {
  int proved = 0;
  for (const Choice& choice : every_choice()) {
    for (const int num_ranks : {64, 100, 128}) {
      prove(choice, num_ranks, proved);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(proved, 300);
}

TEST(Proof, EveryPlanComesBackFromItsText) {
  for (const Choice& choice : every_choice()) {
    for (int num_ranks = 1; num_ranks <= 9; ++num_ranks) {
      if (refusal(choice, num_ranks, 0)) continue;
      const plan::Plan plan = make_plan(choice, num_ranks, 0);
      EXPECT_EQ(plan::parse_plan(plan::to_text(plan)), plan) << title(choice) << ", " << num_ranks << " ranks";
    }
  }
}

// In place, with peers reading in place, these cannot work; executors run them from a copy. docs/metrics.md lists them.
bool overwrites_what_peers_read(const Choice& choice, int num_ranks) {
  const std::string name = title(choice);
  if (name == "all_reduce recursive_doubling") return num_ranks == 2;
  return name == "all_reduce one_shot" || name == "send_recv direct" || name == "all_to_all pairwise" ||
         name == "all_to_all direct" || name == "all_to_all_v pairwise" || name == "all_to_all_v direct";
}

TEST(Proof, InPlaceExceptWhereNeverPossible) {
  for (const Choice& choice : every_choice()) {
    for (int num_ranks = 2; num_ranks <= 17; ++num_ranks) {
      if (refusal(choice, num_ranks, 0)) continue;
      const plan::Plan plan =
          make_plan(choice, num_ranks, num_ranks / 2 * (collectives::has_root(choice.algorithm->kind)));
      const plan::CheckResult result = plan::check(plan, {.capacity = plan::kReadInPlace, .in_place = true});
      EXPECT_EQ(result.ok(), !overwrites_what_peers_read(choice, num_ranks))
          << title(choice) << ", " << num_ranks << " ranks: " << result.text();
    }
  }
}

}  // namespace
}  // namespace lockstep::algorithms
