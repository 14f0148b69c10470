// BPipe's lists, their text, and what EVICT and FETCH do in a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "schedules/check.h"
#include "schedules/count.h"
#include "schedules/generators/catalogue.h"
#include "schedules/step/check_step.h"
#include "schedules/step/lower.h"
#include "schedules/step/memory.h"
#include "schedules/step/simple_play.h"
#include "schedules/text.h"

namespace lockstep::schedules {
namespace {

// Kim et al. 2023, section 3: ceil((p + 2) / 2) microbatches on the fullest rank, where 1F1B holds p; counted from the
// lists.
TEST(BPipe, NoRankHoldsMoreThanHalfOfWhat1F1BDoes) {
  for (std::int32_t p = 1; p <= 16; ++p) {
    const std::int32_t most = (p + 3) / 2;
    for (const std::int32_t m : {1, 2, p - 1, p, p + 1, 2 * p, 4 * p + 1}) {
      if (m < 1) continue;
      const Schedule made = make_schedule("bpipe", {p, m, 1});
      EXPECT_NO_THROW(check_or_throw(made));
      double fullest = 0;
      for (const RankCounts& rank : count_ranks(made)) {
        fullest = std::max(fullest, rank.peak.until_weight_gradient);
      }
      EXPECT_LE(fullest, most) << p << " " << m;
      if (m < p || p < 3) continue;
      EXPECT_EQ(fullest, most) << p << " " << m;
    }
  }
}

TEST(BPipe, ComputationsAreThoseOf1F1B) {
  const Schedule made = make_schedule("bpipe", {8, 16, 1});
  const Schedule plain = make_schedule("1f1b", {8, 16, 1});
  for (std::size_t r = 0; r < made.of_rank.size(); ++r) {
    std::vector<Action> list = made.of_rank[r];
    std::erase_if(list, [](const Action& action) { return !is_compute(action.op); });
    EXPECT_EQ(list, plain.of_rank[r]) << "rank " << r;
  }
  const auto counts = count_ranks(made);
  EXPECT_EQ(counts[0].evictions, 6);
  EXPECT_EQ(counts[2].evictions, 3);
  EXPECT_EQ(counts[4].evictions, 0);
}

// Messages take no time here; bench/pipeline/pipeline_test.cpp has evictions that take time.
TEST(BPipe, MovesRunBesideComputationsAndKeepToTheBound) {
  constexpr std::int64_t kPs = 1000;
  for (const std::int32_t p : {4, 5, 8, 12}) {
    const std::int32_t m = 3 * p;
    const std::vector<StageCosts> costs(static_cast<std::size_t>(p), {kPs, kPs, kPs, 0, kPs});
    const Step step = lower(make_schedule("bpipe", {p, m, 1}), costs);
    EXPECT_TRUE(check_step(step).empty()) << p;
    const Step plain = lower(make_schedule("1f1b", {p, m, 1}), costs);
    const StepTimeline timeline = play_simply(step);
    EXPECT_EQ(end_of(timeline), end_of(play_simply(plain))) << p;
    const std::vector<std::vector<ActivationBytes>> activations(static_cast<std::size_t>(p), {{0, 1}});
    for (const RankMemory& rank : memory_over_time(step, timeline, activations)) {
      EXPECT_LE(peak_of(rank).bytes, (p + 3) / 2) << p;
    }
  }
}

std::string problem_of(std::string_view csv) {
  const auto problems = check(parse_csv(csv, "s.csv"));
  return problems.empty() ? "" : problems.front().what;
}

TEST(BPipe, TextComesBackAndMistakesAreNamed) {
  const std::string two = "\n1F0,1B0,1F1,1B1\n";
  const std::string text = "0F0,0F1,0EVICT1,0B0,0FETCH1,0B1" + two;
  EXPECT_EQ(to_csv(parse_csv(text, "s.csv")), text);
  EXPECT_EQ(problem_of(text), "");
  EXPECT_EQ(problem_of("0F0,0F1,0EVICT1,0B0,0B1" + two), "0EVICT1 has no FETCH");
  EXPECT_EQ(problem_of("0F0,0F1,0B0,0FETCH1,0B1" + two), "0FETCH1 has no EVICT");
  EXPECT_EQ(problem_of("0F0,0EVICT1,0F1,0B0,0FETCH1,0B1" + two),
            "0EVICT1 and its FETCH are not between the forward and the backward");
  EXPECT_EQ(problem_of("0F0,0F1,0EVICT1,0B0,0B1,0FETCH1" + two),
            "0EVICT1 and its FETCH are not between the forward and the backward");
  EXPECT_EQ(problem_of("0F0,0EVICT0,0FETCH0,0B0\n"), "0EVICT0: the middle rank has no partner to evict to");
  EXPECT_EQ(problem_of("0F0,0EVICT0,0FETCH0,0B0\n1F0,1EVICT0,1FETCH0,1B0\n"),
            "1EVICT0: its partner evicts, too; allowed: one rank of each pair");
}

}  // namespace
}  // namespace lockstep::schedules
