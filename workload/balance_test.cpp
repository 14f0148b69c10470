// Stages and slices that a layout leaves to be chosen.
#include "workload/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "workload/build_step.h"

namespace lockstep::workload {
namespace {

Model uneven() {
  return parse_model("layers=10,hidden=64,heads=4,vocabulary=4096,sequence=256,dropout=no");
}

double stage_time(const Model& model, const Layout& layout, std::int32_t stage) {
  const StageWork work =
      work_of(model, layout, slice_of(model, layout, stages_per_pipe(layout), stage), {.kernel = declared_price});
  double time = 0;
  for (const auto* pieces : {&work.recipe.forward, &work.recipe.backward}) {
    for (const schedules::Piece& piece : *pieces) time += static_cast<double>(piece.amount);
  }
  return time;
}

double longest_stage(const Model& model, const Layout& layout) {
  double longest = 0;
  for (std::int32_t s = 0; s < stages_per_pipe(layout); ++s) longest = std::max(longest, stage_time(model, layout, s));
  return longest;
}

// All ways to give ten layers to the stages, by counting up.
double best_of_all(const Model& model, Layout layout) {
  const std::int32_t stages = stages_per_pipe(layout);
  double best = 1e300;
  layout.layers_of.assign(static_cast<std::size_t>(stages), 0);
  for (;;) {
    const auto sum = std::accumulate(layout.layers_of.begin(), layout.layers_of.end(), std::int64_t{0});
    const bool inner =
        std::all_of(layout.layers_of.begin() + 1, layout.layers_of.end() - 1, [](auto n) { return n > 0; });
    if (sum == model.layers && inner) best = std::min(best, longest_stage(model, layout));
    auto digit = layout.layers_of.begin();
    while (digit != layout.layers_of.end() && *digit == model.layers) *digit++ = 0;
    if (digit == layout.layers_of.end()) return best;
    ++*digit;
  }
}

TEST(Balance, NoOtherStagesHaveAShorterLongestOne) {
  for (const char* text : {"pp=2", "pp=3", "pp=4"}) {
    const Layout asked = parse_layout(std::string(text) + ",layers=balanced");
    const Layout chosen = balanced(uneven(), asked, declared_price);
    EXPECT_FALSE(chosen.balanced_layers);
    EXPECT_EQ(why_invalid(uneven(), chosen), "");
    EXPECT_EQ(longest_stage(uneven(), chosen), best_of_all(uneven(), asked)) << text;
    EXPECT_LT(longest_stage(uneven(), chosen), longest_stage(uneven(), parse_layout(text))) << text;
  }
}

TEST(Balance, AVocabularyLargerThanAStageLeavesItsHeadAlone) {
  const Model model = parse_model("layers=4,hidden=64,heads=4,vocabulary=200000,sequence=64,dropout=no");
  const Layout chosen = balanced(model, parse_layout("pp=4,layers=balanced"), declared_price);
  EXPECT_EQ(chosen.layers_of.back(), 0);
  EXPECT_EQ(parse_layout(text_of(chosen)).layers_of, chosen.layers_of);
}

TEST(Balance, SlicesTakeEqualTimes) {
  const Model model = parse_model("layers=4,hidden=64,heads=4,vocabulary=256,sequence=4096,dropout=no");
  const Layout asked = parse_layout("pp=4,microbatches=8,schedule=seq1f1b,slices=4,slicing=balanced");
  const Layout chosen = balanced(model, asked, declared_price);
  ASSERT_EQ(chosen.slice_tokens.size(), 4U);
  EXPECT_TRUE(std::is_sorted(chosen.slice_tokens.rbegin(), chosen.slice_tokens.rend()));
  EXPECT_GT(chosen.slice_tokens.front(), 1024);
  EXPECT_EQ(std::accumulate(chosen.slice_tokens.begin(), chosen.slice_tokens.end(), std::int64_t{0}), 4096);
  EXPECT_EQ(parse_layout(text_of(chosen)).slice_tokens, chosen.slice_tokens);
}

TEST(Balance, WhatIsGivenStays) {
  const Layout given = parse_layout("pp=3,layers=3:5:2");
  EXPECT_EQ(text_of(balanced(uneven(), given, declared_price)), text_of(given));
  const Layout impossible = parse_layout("pp=20,layers=balanced");
  EXPECT_EQ(text_of(balanced(uneven(), impossible, declared_price)), text_of(impossible));
}

// FLOPs and kept bytes of all slices together are those of the whole, but for the head's and norms' uneven sums.
TEST(Slices, WorkAndMemoryOfSlicesAddUp) {
  const Model model = parse_model("layers=2,hidden=64,heads=4,vocabulary=256,sequence=256,dropout=no");
  const Layout whole = parse_layout("pp=1,microbatches=2");
  const Layout sliced = parse_layout("pp=1,microbatches=2,schedule=seq1f1b,slices=128:64:32:32");
  const auto flops = [](const KernelCall& call) { return static_cast<std::int64_t>(cost_of(call).flops); };
  const auto sum = [&](const Layout& layout) {
    double total = 0;
    for (const StageWork& work : works_of(model, layout, schedule_of(layout), {.kernel = flops})) {
      for (const schedules::Piece& piece : work.recipe.forward) total += static_cast<double>(piece.amount);
    }
    return total;
  };
  EXPECT_NEAR(sum(sliced) / sum(whole), 1, 1e-6);
  std::int64_t bytes = 0;
  for (const StageWork& work : works_of(model, sliced, schedule_of(sliced))) bytes += work.message_bytes;
  EXPECT_EQ(bytes, works_of(model, whole, schedule_of(whole)).front().message_bytes);
}

TEST(Slices, LayoutsThatCannotHaveThemAreRefused) {
  const auto refusal = [](const std::string& more) {
    return why_invalid(uneven(), parse_layout("pp=2,microbatches=4,schedule=seq1f1b,slices=4" + more));
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(",cp=2"), "slices is 4, and cp is 2; allowed: cp=1, or slices=1");
  EXPECT_EQ(
      refusal(",recompute=full"),
      "slices is 4, and recompute is full, which would keep no keys for later slices; allowed: selective or none");
  EXPECT_EQ(why_invalid(uneven(), parse_layout("pp=2,schedule=seq1f1b,slices=100:100")),
            "slices have 200 tokens; allowed: those of a sequence, 256");
  EXPECT_EQ(why_invalid(uneven(), parse_layout("pp=2,schedule=1f1b,slices=2")),
            "schedule 1f1b: slices is 2; allowed: 1, as the schedule takes microbatches whole");
}

}  // namespace
}  // namespace lockstep::workload
