#include "simulator/predict/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "schedules/generators/catalogue.h"

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
    const Prediction prediction = predict(small_model(), layout, machine, {.detail = Detail::folded});
    if (prediction.fits) {
      all.push_back(prediction.step_s);
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
  EXPECT_GT(result.beaten, 0);  // the bound excludes layouts
  EXPECT_EQ(steps_of(result), std::vector<double>(all.begin(), all.begin() + 10));
}

TEST(Search, DoesNotDependOnThreads) {
  const Machine machine = load_machine("dgx-a100");
  const SearchResult result = search_layouts(small_model(), machine, small_space(), 5, 1);
  const SearchResult three = search_layouts(small_model(), machine, small_space(), 5, 3);
  ASSERT_EQ(result.best.size(), three.best.size());
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    EXPECT_EQ(text_of(result.best[i].layout), text_of(three.best[i].layout));
  }
  EXPECT_EQ(result.simulated, three.simulated);
}

// The bound holds for every layout, including schedules with split backwards.
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

// A host of two cores with a measured time for every kernel of the space: 1 us alone and, by noise, less during a copy.
Machine shared_machine(const workload::Model& model, const SearchSpace& space) {
  Machine machine = load_machine("dgx-a100");
  machine.measured.cores = 2;
  for (const workload::Layout& layout : legal_layouts(model, machine, space)) {
    works_of(model, layout, schedule_of(layout), {.kernel = [&](const workload::KernelCall& call) -> std::int64_t {
               machine.measured.kernels[workload::signature_of(call)] = {{1, 1}, {2, 0.6}};
               return 0;
             }});
  }
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "send_recv"}) {
    machine.measured.collectives.push_back({name, 2, {{1e9, 1e-6}}});
  }
  return machine;
}

SearchSpace two_ranks() {
  SearchSpace space;
  space.gpus = 2;
  space.global_batch = 2;
  space.schedules = {"1f1b"};
  space.microbatches = {1, 2};
  space.base.compute = space.base.gradient = core::DType::f32;
  return space;
}

TEST(Search, TheBoundHoldsWhereCopiesOfAKernelAreFasterThanOne) {
  const workload::Model model = workload::parse_model("nano,sequence=32");
  const Machine machine = shared_machine(model, two_ranks());
  double best = std::numeric_limits<double>::infinity();
  for (const workload::Layout& layout : legal_layouts(model, machine, two_ranks())) {
    best = std::min(best, predict(model, layout, machine, {.detail = Detail::folded}).step_s);
  }
  const SearchResult result = search_layouts(model, machine, two_ranks(), 1000, 1);
  ASSERT_GT(result.simulated, 10);
  for (const FoundLayout& found : result.best) EXPECT_LE(found.bound_s, found.prediction.step_s * (1 + 1e-12));
  EXPECT_EQ(search_layouts(model, machine, two_ranks(), 1, 1).best.front().prediction.step_s, best);
}

TEST(Search, RanksOfAHostNeedItsMemoryTogether) {
  const workload::Model model = workload::parse_model("nano,sequence=32");
  Machine machine = shared_machine(model, two_ranks());
  const workload::Layout layout = workload::parse_layout("dp=2,batch=2,dtype=f32,grad_dtype=f32");
  const Prediction alone = predict(model, layout, machine);
  const double rank_bytes = alone.memory[alone.fullest].total();
  EXPECT_DOUBLE_EQ(alone.needed_bytes, 2 * rank_bytes);
  EXPECT_TRUE(alone.fits);
  machine.device.memory_bytes = std::llround(1.5 * rank_bytes);
  EXPECT_FALSE(predict(model, layout, machine).fits);
  const SearchResult result = search_layouts(model, machine, two_ranks(), 1000, 1);
  for (const FoundLayout& found : result.best) EXPECT_TRUE(found.prediction.fits) << text_of(found.layout);
  EXPECT_GT(result.too_large, 0);
  machine.measured.cores = 0;  // devices do not share cores
  EXPECT_TRUE(predict(model, layout, machine).fits);
}

TEST(Search, NothingFitsOnATinyDevice) {
  Machine machine = load_machine("dgx-a100");
  machine.device.memory_bytes = 1000;
  const SearchResult result = search_layouts(small_model(), machine, small_space(), 10, 2);
  EXPECT_TRUE(result.best.empty());
  EXPECT_EQ(result.too_large, result.legal);
  EXPECT_GT(result.least_memory_bytes, 1000);
}

TEST(Ways, ALayoutGoesOne) {
  const std::map<std::string, std::string> expected{{"dp=1", "one device"},
                                                    {"dp=8", "DP"},
                                                    {"dp=8,zero=2", "ZeRO-2"},
                                                    {"dp=8,zero=3", "ZeRO-3"},
                                                    {"tp=8", "TP"},
                                                    {"pp=8", "PP"},
                                                    {"tp=2,pp=4", "TP+PP"},
                                                    {"tp=2,dp=4", "TP+DP"},
                                                    {"tp=2,dp=4,zero=1", "TP+DP"},
                                                    {"tp=2,dp=4,zero=3", "TP+ZeRO-3"},
                                                    {"pp=2,dp=4", "PP+DP"},
                                                    {"tp=2,pp=2,dp=2,zero=3", "TP+PP+ZeRO-3"}};
  for (const auto& [layout, way] : expected) EXPECT_EQ(way_of(workload::parse_layout(layout)), way) << layout;
}

// Layouts excluded by their bound are neither winner nor runner-up: simulating every layout gives the same result.
TEST(Ways, TheFastestIsThatOfSimulatingAll) {
  const workload::Model model = workload::parse_model("gpt3-1.3b");
  const SearchSpace space{
      .gpus = 16, .global_batch = 32, .base = {}, .schedules = {"1f1b"}, .chunks = {}, .microbatches = {1, 2}};
  const Machine fast = load_machine("dgx-a100");
  WaySearch search(model, fast, space);
  for (const double gbps : {25.0, 5.0, 0.5}) {
    Machine machine = fast;
    machine.levels.back().gbps = gbps;
    std::map<std::string_view, double> best;
    for (const workload::Layout& layout : legal_layouts(model, machine, space)) {
      if (layout.tp > 1 && !layout.sequence_parallel) continue;
      const Prediction prediction = predict(model, layout, machine, {.detail = Detail::folded});
      if (!prediction.fits) continue;
      const auto at = best.try_emplace(way_of(layout), prediction.step_s).first;
      at->second = std::min(at->second, prediction.step_s);
    }
    const Fastest found = search.fastest_on(machine);
    ASSERT_EQ(found.best.size(), 2U);
    const std::string_view winner = way_of(found.best[0].layout);
    EXPECT_EQ(found.best[0].prediction.step_s, best[winner]) << gbps;
    double next = 1e9;
    for (const auto& [way, step_s] : best) {
      EXPECT_LE(found.best[0].prediction.step_s, (1 + kSameTime) * step_s) << gbps << way;
      if (way != winner) next = std::min(next, step_s);
    }
    EXPECT_EQ(found.best[1].prediction.step_s, next) << gbps;
    EXPECT_LT(found.simulated, search.legal()) << gbps;
  }
}

TEST(Ways, WhatDoesNotFitIsReported) {
  const workload::Model model = workload::parse_model("gpt3-175b");
  const Machine machine = load_machine("dgx-a100");
  WaySearch search(model, machine, {.gpus = 8, .global_batch = 8, .base = {}, .schedules = {"1f1b"}, .chunks = {}});
  EXPECT_TRUE(search.fastest_on(machine).best.empty());
  EXPECT_GT(search.least_memory_bytes(), 85.9e9);
  EXPECT_GT(search.least_memory_bytes("DP"), 2e12);
}

}  // namespace
}  // namespace lockstep::simulator
