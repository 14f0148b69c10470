#include "simulator/predict/ways.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::simulator {
namespace {

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
      const Prediction made = predict(model, layout, machine, {.detail = Detail::folded});
      if (!made.fits) continue;
      const auto at = best.try_emplace(way_of(layout), made.step_s).first;
      at->second = std::min(at->second, made.step_s);
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

TEST(Ways, WhatDoesNotFitIsSaid) {
  const workload::Model model = workload::parse_model("gpt3-175b");
  const Machine machine = load_machine("dgx-a100");
  WaySearch search(model, machine, {.gpus = 8, .global_batch = 8, .base = {}, .schedules = {"1f1b"}, .chunks = {}});
  EXPECT_TRUE(search.fastest_on(machine).best.empty());
  EXPECT_GT(search.least_memory_bytes(), 85.9e9);
  EXPECT_GT(search.least_memory_bytes("DP"), 2e12);
}

}  // namespace
}  // namespace lockstep::simulator
