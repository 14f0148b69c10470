#include "simulator/predict/search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/catalogue.h"
#include "simulator/predict/step_bound.h"

namespace lockstep::simulator {
namespace {

workload::Model small_model() {
  return workload::parse_model("gpt3-2.7b");
}

SearchSpace small_space() {
  SearchSpace space;
  space.gpus = 16;
  space.global_batch = 32;
  space.schedules = {"1f1b", "interleaved", "zb_h1", "zb_v"};
  space.chunks = {2, 4};
  space.microbatches = {1, 2};
  return space;
}

std::vector<double> steps_of(const SearchResult& result) {
  std::vector<double> steps;
  for (const FoundLayout& found : result.best) steps.push_back(found.prediction.step_s);
  return steps;
}

TEST(Search, FindsWhatSimulatingAllFinds) {
  Machine machine = load_machine("dgx-a100");
  machine.device.memory_bytes = 16'000'000'000;
  std::vector<double> all;
  std::int64_t too_large = 0;
  const std::vector<workload::Layout> layouts = legal_layouts(small_model(), machine, small_space());
  for (const workload::Layout& layout : layouts) {
    const Prediction made = predict(small_model(), layout, machine, {.detail = Detail::folded});
    if (made.fits) {
      all.push_back(made.step_s);
    } else {
      ++too_large;
    }
  }
  std::sort(all.begin(), all.end());
  ASSERT_GT(layouts.size(), 200U);
  ASSERT_GT(too_large, 0);
  const SearchResult result = search_layouts(small_model(), machine, small_space(), 10, 2);
  EXPECT_EQ(result.legal, static_cast<std::int64_t>(layouts.size()));
  EXPECT_EQ(result.too_large, too_large);
  EXPECT_EQ(result.simulated + result.beaten + result.too_large, result.legal);
  EXPECT_GT(result.beaten, 0);  // the bound is worth something
  EXPECT_EQ(steps_of(result), std::vector<double>(all.begin(), all.begin() + 10));
}

TEST(Search, DoesNotDependOnThreads) {
  const Machine machine = load_machine("dgx-a100");
  const SearchResult one = search_layouts(small_model(), machine, small_space(), 5, 1);
  const SearchResult three = search_layouts(small_model(), machine, small_space(), 5, 3);
  ASSERT_EQ(one.best.size(), three.best.size());
  for (std::size_t i = 0; i < one.best.size(); ++i) {
    EXPECT_EQ(text_of(one.best[i].layout), text_of(three.best[i].layout));
  }
  EXPECT_EQ(one.simulated, three.simulated);
}

// For every layout, also of schedules that split the backward.
TEST(Search, NoStepIsShorterThanItsBound) {
  const Machine machine = load_machine("dgx-a100");
  SearchSpace space = small_space();
  space.microbatches = {2};
  double closest = 0;
  for (const workload::Layout& layout : legal_layouts(small_model(), machine, space)) {
    const schedules::Schedule schedule = schedules::make_schedule(layout.schedule, shape_of(layout));
    const double bound =
        step_bound_s(schedule, works_of(small_model(), layout, schedule,
                                        pricing_of(small_model(), layout, schedule, machine, Detail::folded)));
    const double step = predict(small_model(), layout, machine, {.detail = Detail::folded}).step_s;
    EXPECT_LE(bound, step * (1 + 1e-12)) << text_of(layout);
    closest = std::max(closest, bound / step);
  }
  EXPECT_GT(closest, 0.9);
}

TEST(Search, NothingFitsOnATinyDevice) {
  Machine machine = load_machine("dgx-a100");
  machine.device.memory_bytes = 1000;
  const SearchResult result = search_layouts(small_model(), machine, small_space(), 10, 2);
  EXPECT_TRUE(result.best.empty());
  EXPECT_EQ(result.too_large, result.legal);
  EXPECT_GT(result.least_memory_bytes, 1000);
}

}  // namespace
}  // namespace lockstep::simulator
