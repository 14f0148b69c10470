// Schedules cost what their closed forms say wherever these claim to be exact.
#include "schedules/generators/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/count.h"
#include "schedules/generators/closed_forms.h"
#include "schedules/generators/every_schedule.h"
#include "schedules/generators/reorder.h"

namespace lockstep::schedules {
namespace {

std::string name_of(const CatalogueEntry& entry, const PipelineShape& shape) {
  return std::string(entry.name) + " p=" + std::to_string(shape.ranks) + " m=" + std::to_string(shape.microbatches) +
         " v=" + std::to_string(shape.chunks);
}

TEST(Catalogue, ClosedFormsAreExactWhereTheySaySo) {
  const Times sets[] = {{1, 1, 1}, {1, 1.25, 0.75}, {2, 2.5, 0.5}, {1, 0.5, 0.5}, {1, 3, 2}, {0.5, 1, 0.25}};
  std::map<std::string_view, int> checked;
  for_every_schedule(9, [&](const CatalogueEntry& entry, const PipelineShape& shape, const Schedule& schedule) {
    for (const Times& times : sets) {
      const auto form = entry.closed_form(shape, times);
      if (!form) continue;
      const Spans spans = spans_of(schedule, times, play(schedule, times));
      EXPECT_NEAR(form->of_makespan ? spans.makespan : spans.own, form->cost, 1e-9 * form->cost)
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
  const auto refusal = [](std::string_view name, const PipelineShape& shape) -> std::string {
    try {
      make_schedule(name, shape);
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
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
  EXPECT_NE(refusal("gpip", {2, 8, 1}).find("schedule 'gpip' is not known; allowed: naive, "), std::string::npos);
  EXPECT_EQ(refusal("zb_v", {4, 1, 1}), "");
}

// 1F1B without slack loses twice the latency for most microbatches; the interleaved form, with slack, does not
// (docs/metrics.md, "What latency costs").
TEST(Catalogue, LatencyLaws) {
  const double c = 0.01;
  const Times times{1, 1, 1, c};
  for (std::int32_t p = 2; p <= 8; ++p) {
    for (std::int32_t m = p; m <= 4 * p; ++m) {
      const Schedule plain = make_schedule("1f1b", {p, m, 1});
      const std::int32_t waits = (p - 1) + (m - 1) * (p - 1) / p;
      const double lost = 2 * c * waits;
      EXPECT_NEAR(spans_of(plain, times, play(plain, times)).makespan, 3 * (m + p - 1) + lost, 1e-9) << p << " " << m;
      if (m % p != 0) continue;
      const Schedule chunked = make_schedule("interleaved", {p, m, 2});
      EXPECT_NEAR(spans_of(chunked, times, play(chunked, times)).makespan, 3 * m + 1.5 * (p - 1) + 2 * c * (2 * p - 1),
                  1e-9)
          << p << " " << m;
    }
  }
}

// reordered() takes no more memory and is never slower; V-Half's bubble stays below p/2m of the ideal time (Qi et al.
// 2024, table 1).
TEST(Catalogue, ReorderedEndsOfVSchedules) {
  const Times times{1, 1, 1};
  const auto most_held = [](const Schedule& schedule) {
    double most = 0;
    for (const RankCounts& rank : count_ranks(schedule)) most = std::max(most, rank.peak.until_weight_gradient);
    return most;
  };
  for (std::int32_t p = 2; p <= 16; ++p) {
    for (const std::int32_t m : {p, 2 * p, 4 * p}) {
      const PipelineShape shape{p, m, 1};
      for (const auto& [better, block] : {std::pair(make_schedule("v_half", shape), v_half_block(shape)),
                                          std::pair(make_schedule("v_min", shape), v_min_block(shape))}) {
        EXPECT_LE(most_held(better), most_held(block)) << better.name << " " << p << " " << m;
        EXPECT_LE(spans_of(better, times, play(better, times)).own, spans_of(block, times, play(block, times)).own)
            << better.name << " " << p << " " << m;
      }
      const Schedule half = make_schedule("v_half", shape);
      const Bubbles bubbles = bubbles_of(spans_of(half, times, play(half, times)));
      EXPECT_LT(bubbles.own_of_ideal, 0.5 * p / m) << p << " " << m;
    }
  }
}

// At most twice the activations of Chimera.
TEST(Catalogue, ChimeraDoubledHoldsTwiceAsMuch) {
  for (const std::int32_t p : {2, 4, 8}) {
    for (const std::int32_t m : {2 * p, 8 * p}) {
      const PipelineShape shape{p, m, 1};
      double most = 0;
      for (const RankCounts& rank : count_ranks(make_schedule("chimera_doubled", shape))) {
        most = std::max(most, rank.peak.until_weight_gradient);
      }
      EXPECT_DOUBLE_EQ(most, 2 * p);
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
  const auto makespan = [&](const Schedule& s) { return spans_of(s, times, play(s, times)).makespan; };
  for (std::int32_t p : {2, 4, 8}) {
    double before = makespan(make_schedule("1f1b", {p, p, 1}));
    for (std::int32_t chunks : {2, 4, 8}) {
      const Schedule waves = make_schedule("hanayo", {p, p, chunks});
      EXPECT_LT(makespan(waves), before) << p << " " << chunks;
      before = makespan(waves);
    }
  }
}

}  // namespace
}  // namespace lockstep::schedules
