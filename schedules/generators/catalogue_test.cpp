// Schedules cost what their closed forms predict wherever these claim to be exact, and equal an independent table.
#include "schedules/generators/catalogue.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "schedules/generators/zero_bubble.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "testing/core/refusal.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

std::string name_of(const CatalogueEntry& entry, const PipelineShape& shape) {
  return std::string(entry.name) + " p=" + std::to_string(shape.ranks) + " m=" + std::to_string(shape.microbatches) +
         " v=" + std::to_string(shape.chunks);
}

TEST(Catalogue, ClosedFormsAreExactWhereTheyClaimToBe) {
  const Times sets[] = {{1, 1, 1}, {1, 1.25, 0.75}, {2, 2.5, 0.5}, {1, 0.5, 0.5}, {1, 3, 2}, {0.5, 1, 0.25}};
  std::map<std::string_view, int> checked;
  for_every_schedule(9, [&](const CatalogueEntry& entry, const PipelineShape& shape, const Schedule& schedule) {
    for (const Times& times : sets) {
      const auto form = entry.closed_form(shape, times);
      if (!form) continue;
      const Spans played = spans(schedule, times);
      EXPECT_NEAR(form->of_makespan ? played.makespan : played.own, form->cost, 1e-9 * form->cost)
          << name_of(entry, shape) << " f=" << times.forward << " i=" << times.input_gradient
          << " w=" << times.weight_gradient;
      ++checked[entry.name];
    }
  });
  for (const CatalogueEntry& entry : catalogue()) {
    if (entry.closed_form == none_known) continue;
    EXPECT_GT(checked[entry.name], 10) << entry.name;
  }
}

// The rank at the other end of the pipeline does the same in the other pipe, in the same order, so copies of a stage
// meet.
TEST(Catalogue, OppositePipesAreMirrorImages) {
  int compared = 0;
  for_every_schedule(8, [&](const CatalogueEntry& entry, const PipelineShape& shape, const Schedule& schedule) {
    EXPECT_EQ(schedule.num_pipes(), entry.weight_copies);
    if (schedule.num_pipes() != 2) return;
    const auto mirrored = [&](Action action) {
      action.stage = (action.stage + schedule.stages_per_pipe) % schedule.num_stages();
      action.microbatch = (action.microbatch + shape.microbatches / 2) % shape.microbatches;
      return action;
    };
    for (std::size_t r = 0; r < schedule.of_rank.size(); ++r) {
      std::vector<Action> image = schedule.of_rank[schedule.of_rank.size() - 1 - r];
      std::transform(image.begin(), image.end(), image.begin(), mirrored);
      EXPECT_EQ(schedule.of_rank[r], image) << name_of(entry, shape) << ", rank " << r;
      ++compared;
    }
  });
  EXPECT_GT(compared, 50);
}

TEST(Catalogue, ShapesThatDoNotFitAreRefusedWithWhatWould) {
  const auto refusal = [](std::string_view name, const PipelineShape& shape) {
    return core::refusal_of([&] { make_schedule(name, shape); });
  };
  EXPECT_EQ(refusal("dualpipe", {4, 4, 1}), "dualpipe: microbatches is 4; allowed: at least 8");
  EXPECT_EQ(refusal("dualpipe", {3, 8, 1}), "dualpipe: ranks is 3; allowed: multiples of 2, such as 2 or 4");
  EXPECT_EQ(refusal("dualpipe", {4, 9, 1}), "dualpipe: microbatches is 9; allowed: multiples of 2, such as 8 or 10");
  EXPECT_EQ(refusal("dualpipe_v", {4, 4, 1}), "dualpipe_v: microbatches is 4; allowed: at least 8");
  EXPECT_EQ(refusal("chimera", {4, 6, 1}),
            "chimera: microbatches is 6; allowed: multiples of the ranks (4), such as 4 or 8");
  EXPECT_EQ(refusal("chimera_doubled", {4, 12, 1}),
            "chimera_doubled: microbatches is 12; allowed: multiples of twice the ranks (8), such as 8 or 16");
  EXPECT_EQ(refusal("interleaved", {4, 8, 1}), "interleaved: chunks is 1; allowed: at least 2");
  EXPECT_EQ(refusal("interleaved", {4, 9, 2}),
            "interleaved: 9 microbatches cannot be split into 2 equal groups of at least 4; try 8 or 10");
  EXPECT_EQ(refusal("gpipe", {0, 8, 1}), "gpipe: ranks is 0; allowed: at least 1");
  EXPECT_EQ(refusal("gpipe", {2, 8, 2}), "gpipe: chunks is 2; allowed: 1, as the schedule has its own stages");
  EXPECT_NE(refusal("gpip", {2, 8, 1}).find("schedule 'gpip' is not known; nearest: gpipe; allowed: naive "),
            std::string::npos);
  EXPECT_EQ(refusal("zb_v", {4, 1, 1}), "");
}

// 1F1B without slack loses twice the latency for most microbatches; the interleaved form, with slack, does not
// (docs/metrics.md, "Cost of latency").
TEST(Catalogue, LatencyLaws) {
  const double c = 0.01;
  const Times times{1, 1, 1, c};
  for (std::int32_t p = 2; p <= 8; ++p) {
    for (std::int32_t m = p; m <= 4 * p; ++m) {
      const Schedule plain = make_schedule("1f1b", {p, m, 1});
      const std::int32_t waits = (p - 1) + (m - 1) * (p - 1) / p;
      const double lost = 2 * c * waits;
      EXPECT_NEAR(spans(plain, times).makespan, 3 * (m + p - 1) + lost, 1e-9) << p << " " << m;
      if (m % p != 0) continue;
      const Schedule chunked = make_schedule("interleaved", {p, m, 2});
      EXPECT_NEAR(spans(chunked, times).makespan, 3 * m + 1.5 * (p - 1) + 2 * c * (2 * p - 1), 1e-9) << p << " " << m;
    }
  }
}

// reordered() takes no more memory and is never slower; V-Half's bubble stays below p/2m of the ideal time (Qi et al.
// 2024, table 1).
TEST(Catalogue, ReorderedEndsOfVSchedules) {
  const Times times{1, 1, 1};
  for (std::int32_t p = 2; p <= 16; ++p) {
    for (const std::int32_t m : {p, 2 * p, 4 * p}) {
      const PipelineShape shape{p, m, 1};
      for (const auto& [better, block] : {std::pair(make_schedule("v_half", shape), v_half_block(shape)),
                                          std::pair(make_schedule("v_min", shape), v_min_block(shape))}) {
        EXPECT_LE(most_held(better), most_held(block)) << better.name << " " << p << " " << m;
        EXPECT_LE(spans(better, times).own, spans(block, times).own) << better.name << " " << p << " " << m;
      }
      const Schedule half = make_schedule("v_half", shape);
      const Bubbles bubbles = bubbles_of(spans(half, times));
      EXPECT_LT(bubbles.own_of_ideal, 0.5 * p / m) << p << " " << m;
    }
  }
}

// At most twice the activations of Chimera.
TEST(Catalogue, ChimeraDoubledHoldsTwiceAsMuch) {
  for (const std::int32_t p : {2, 4, 8}) {
    for (const std::int32_t m : {2 * p, 8 * p}) {
      const PipelineShape shape{p, m, 1};
      EXPECT_DOUBLE_EQ(most_held(make_schedule("chimera_doubled", shape)), 2 * p);
    }
  }
}

// The search is never behind the schedules made by hand, within 1F1B's activations and within twice as many.
TEST(Catalogue, SearchedSchedulesKeepWithinTheirMemory) {
  const Times times{1, 1, 1};
  for (const std::int32_t p : {1, 2, 4, 7}) {
    for (const std::int32_t m : {1, p, 2 * p - 1, 3 * p}) {
      const PipelineShape shape{p, m, 1};
      for (const auto& [name, by_hand, share] : {std::tuple("zb_1p", "zb_h1", 1), std::tuple("zb_2p", "zb_h2", 2)}) {
        const Schedule schedule = make_schedule(name, shape);
        EXPECT_EQ(schedule.name, name);
        EXPECT_LE(most_held(schedule), share * p);
        const Schedule other = make_schedule(by_hand, shape);
        EXPECT_LE(spans(schedule, times).own, spans(other, times).own) << name << " " << p << " " << m;
      }
    }
  }
}

TEST(Catalogue, WeightVersions) {
  const PipelineShape shape{4, 8, 1};
  const auto versions = [&](std::string_view name) {
    std::vector<std::int32_t> of_ranks;
    for (std::int32_t r = 0; r < 4; ++r) of_ranks.push_back(weight_versions(entry_named(name), shape, r));
    return of_ranks;
  };
  EXPECT_EQ(versions("1f1b"), (std::vector<std::int32_t>{1, 1, 1, 1}));
  EXPECT_EQ(versions("pipedream"), (std::vector<std::int32_t>{4, 3, 2, 1}));
  EXPECT_EQ(versions("pipedream_2bw"), (std::vector<std::int32_t>{2, 2, 2, 2}));
}

// With as many microbatches as ranks, each doubling of Hanayo's waves shortens the step.
TEST(Catalogue, HanayoWavesShortenTheBubble) {
  const Times times{1, 1, 1};
  const auto makespan = [&](const Schedule& s) { return spans(s, times).makespan; };
  for (std::int32_t p : {2, 4, 8}) {
    double before = makespan(make_schedule("1f1b", {p, p, 1}));
    for (std::int32_t chunks : {2, 4, 8}) {
      const Schedule waves = make_schedule("hanayo", {p, p, chunks});
      EXPECT_LT(makespan(waves), before) << p << " " << chunks;
      before = makespan(waves);
    }
  }
}

// BPipe's lists, their text, and what EVICT and FETCH do in a step.

// Kim et al. 2023, section 3: ceil((p + 2) / 2) microbatches on the fullest rank, where 1F1B holds p; counted from the
// lists.
TEST(BPipe, NoRankHoldsMoreThanHalfOfWhat1F1BDoes) {
  for (std::int32_t p = 1; p <= 16; ++p) {
    const std::int32_t most = (p + 3) / 2;
    for (const std::int32_t m : {1, 2, p - 1, p, p + 1, 2 * p, 4 * p + 1}) {
      if (m < 1) continue;
      const Schedule schedule = make_schedule("bpipe", {p, m, 1});
      EXPECT_NO_THROW(check_or_throw(schedule));
      const double fullest = most_held(schedule);
      EXPECT_LE(fullest, most) << p << " " << m;
      if (m < p || p < 3) continue;
      EXPECT_EQ(fullest, most) << p << " " << m;
    }
  }
}

TEST(BPipe, ComputationsAreThoseOf1F1B) {
  const Schedule schedule = make_schedule("bpipe", {8, 16, 1});
  const Schedule plain = make_schedule("1f1b", {8, 16, 1});
  for (std::size_t r = 0; r < schedule.of_rank.size(); ++r) {
    std::vector<Action> list = schedule.of_rank[r];
    std::erase_if(list, [](const Action& action) { return !is_compute(action.op); });
    EXPECT_EQ(list, plain.of_rank[r]) << "rank " << r;
  }
  const auto counts = count_ranks(schedule);
  EXPECT_EQ(counts[0].evictions, 6);
  EXPECT_EQ(counts[2].evictions, 3);
  EXPECT_EQ(counts[4].evictions, 0);
}

// Messages take no time here; bench/pipeline_perf/pipeline_test.cpp has evictions that take time.
TEST(BPipe, MovesRunDuringComputationsAndKeepToTheBound) {
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

// Compares makespans, spans, peaks, messages, their order, and hangs with a table that was made independently of this
// code (testdata/pipeline_truth.json; its "definitions" explain the fields).

using nlohmann::json;

const json& truth() {
  static const json table = json::parse(std::ifstream(LOCKSTEP_PIPELINE_TRUTH));
  return table;
}

// The table's names contain the chunks ("interleaved_v4"), and its V schedules also exist as blocks before reordered()
// ("v_min_block").
struct Named {
  std::string name;
  std::int32_t chunks = 1;
};
Named named(std::string name) {
  Named found{name};
  const std::size_t at = name.rfind("_v");
  if (at != std::string::npos && at + 2 < name.size() && name[at + 2] != 'm') {
    found = {name.substr(0, at), std::stoi(name.substr(at + 2))};
  }
  if (found.name == "looped_bfs") found.name = "breadth_first";
  if (found.name == "dualpipev") found.name = "dualpipe_v";
  return found;
}

Schedule schedule_of(const json& row) {
  const Named found = named(row.at("schedule"));
  const PipelineShape shape{row.at("p"), row.at("m"), 1};
  if (found.name == "v_half_block") return v_half_block(shape);
  if (found.name == "v_min_block") return v_min_block(shape);
  return make_schedule(found.name, {row.at("p"), row.at("m"), found.chunks});
}

std::string label(const json& row) {
  return row.at("schedule").get<std::string>() + " p=" + row.at("p").dump() + " m=" + row.at("m").dump();
}

TEST(Truth, Times) {
  for (const json& row : truth().at("cases")) {
    const Schedule schedule = schedule_of(row);
    const Times times{1, 1, 1, row.at("tcomm")};
    const Timeline timeline = play(schedule, times);
    const Spans spans = spans_of(schedule, times, timeline);
    const Bubbles bubbles = bubbles_of(spans);
    EXPECT_NEAR(spans.makespan, row.at("makespan"), 1e-8) << label(row);
    EXPECT_NEAR(spans.own, row.at("max_span"), 1e-8) << label(row);
    EXPECT_NEAR(spans.work, row.at("work"), 1e-8) << label(row);
    EXPECT_NEAR(bubbles.of_makespan, row.at("bubble_makespan"), 1e-8) << label(row);
    EXPECT_NEAR(bubbles.of_own_span, row.at("bubble_span"), 1e-8) << label(row);
    for (std::size_t r = 0; r < timeline.size(); ++r) {
      EXPECT_NEAR(timeline[r].front().start, row.at("start").at(r), 1e-8) << label(row);
      EXPECT_NEAR(timeline[r].back().end, row.at("end").at(r), 1e-8) << label(row);
    }
  }
  EXPECT_GE(truth().at("cases").size(), 220U);
}

TEST(Truth, CountsAndHangs) {
  for (const json& row : truth().at("static")) {
    const Schedule schedule = schedule_of(row);
    std::vector<double> until_w;
    std::vector<double> until_i;
    std::vector<std::int64_t> sends;
    for (const RankCounts& rank : count_ranks(schedule)) {
      until_w.push_back(rank.peak.until_weight_gradient);
      until_i.push_back(rank.peak.until_input_gradient);
      sends.push_back(rank.sends);
    }
    EXPECT_EQ(json(until_w), row.at("peak_act")) << label(row);
    EXPECT_EQ(json(until_i), row.at("peak_act_B")) << label(row);
    EXPECT_EQ(json(sends), row.at("sends")) << label(row);
    const Ordering ordering = count_ordering(schedule);
    EXPECT_EQ(ordering.pairs, row.at("pairs")) << label(row);
    EXPECT_EQ(ordering.pairs_out_of_order, row.at("pairs_out_of_order")) << label(row);
    EXPECT_EQ(ordering.set_aside, row.at("extra_buffers")) << label(row);
    const Schedule lowered = with_messages(schedule);
    EXPECT_EQ(!hang_of(lowered, {Waiting::blocking}).empty(), row.at("hangs_blocking")) << label(row);
    EXPECT_EQ(!hang_of(lowered, {Waiting::batched}).empty(), row.at("hangs_batched")) << label(row);
  }
  EXPECT_GE(truth().at("static").size(), 110U);
}

TEST(Truth, IllegalShapesAreRefused) {
  for (const json& row : truth().at("illegal")) EXPECT_ANY_THROW(schedule_of(row)) << label(row);
}

}  // namespace
}  // namespace lockstep::schedules
