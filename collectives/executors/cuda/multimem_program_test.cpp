#include "collectives/executors/cuda/multimem_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "collectives/algorithms/algorithm.h"

namespace lockstep::executors::cuda {
namespace {

using collectives::Kind;
using collectives::Operation;

// How many instructions of all ranks the switch does.
struct Counted {
  int loads = 0;
  int stores = 0;
};

Counted counted(const plan::Plan& plan, const Operation& operation) {
  Counted all;
  const auto program = lower_for_multimem(plan, operation);
  if (!program) return all;
  for (const plan::RankProgram& rank : program->ranks) {
    for (const plan::LaneProgram& lane : rank.lanes) {
      for (const plan::Instruction& one : lane.instructions) {
        const Multimem what = multimem_of(*program, lane, one, operation);
        all.loads += what.loads ? 1 : 0;
        all.stores += what.stores ? 1 : 0;
      }
    }
  }
  return all;
}

plan::Plan plan_of(Kind kind, std::string_view algorithm, int num_ranks) {
  return algorithms::make_plan(algorithms::parse_choice(kind, algorithm), num_ranks, 0);
}

TEST(Multimem, EachRankOfATwoShotLoadsItsPieceAndStoresItEverywhere) {
  for (int ranks : {2, 4, 8}) {
    const Operation operation{.kind = Kind::all_reduce, .count = 1024};
    const Counted all = counted(plan_of(Kind::all_reduce, "two_shot", ranks), operation);
    EXPECT_EQ(all.loads, ranks);
    EXPECT_EQ(all.stores, ranks);
  }
}

// The whole catalogue: which algorithms give the switch something to do, at 8 ranks.
TEST(Multimem, WhatTheCatalogueGivesTheSwitch) {
  std::map<std::string, std::string> given;
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    const auto choice = algorithms::parse_choice(algorithm.kind, algorithm.name);
    if (algorithm.kind == Kind::all_to_all_v || algorithms::refusal(choice, 8, 0)) continue;
    const Counted all = counted(algorithms::make_plan(choice, 8, 0), {.kind = algorithm.kind, .count = 1024});
    if (all.loads + all.stores == 0) continue;
    given[std::string(name_of(algorithm.kind)) + ' ' + std::string(algorithm.name)] =
        std::to_string(all.loads) + ' ' + std::to_string(all.stores);
  }
  // Loads and stores. Who sends the same piece to all others keeps its own by a copy, so that there is no such store.
  // The root, or the one server, reduces all and writes to all at once.
  const std::map<std::string, std::string> expected = {
      {"all_reduce one_shot", "8 0"}, {"all_reduce root", "1 1"}, {"all_reduce server", "1 1"},
      {"all_reduce two_shot", "8 8"}, {"reduce direct", "1 0"},   {"reduce_scatter direct", "8 0"},
  };
  EXPECT_EQ(given, expected);
}

TEST(Multimem, OnlyWhatPtxHas) {
  const plan::Plan plan = plan_of(Kind::all_reduce, "two_shot", 4);
  for (core::DType dtype : core::all_dtypes()) {
    for (core::ReduceOp op : core::all_reduce_ops()) {
      const Operation operation{.kind = Kind::all_reduce, .count = 1024, .dtype = dtype, .op = op};
      EXPECT_EQ(counted(plan, operation).loads > 0, has_multimem(dtype, op)) << core::name_of(dtype);
    }
  }
  using core::DType;
  using core::ReduceOp;
  EXPECT_TRUE(has_multimem(DType::bf16, ReduceOp::max));
  EXPECT_FALSE(has_multimem(DType::f32, ReduceOp::max));
  EXPECT_FALSE(has_multimem(DType::f8e4m3, ReduceOp::sum));
  EXPECT_FALSE(has_multimem(DType::f32, ReduceOp::prod));
}

TEST(Multimem, PiecesOfHalfAccessesAreNotForTheSwitch) {
  const plan::Plan plan = plan_of(Kind::all_reduce, "two_shot", 4);
  const auto loads = [&](std::int64_t count) {
    return counted(plan, {.kind = Kind::all_reduce, .count = count, .dtype = core::DType::bf16}).loads;
  };
  for (std::int64_t count : {1, 15, 17, 1000}) EXPECT_EQ(loads(count), 0) << count;
  EXPECT_EQ(loads(1023), 3) << "of four pieces the last is shorter";
}

TEST(Multimem, APlaceOfTheSwitchIsOneAndNobodyWaitsForLess) {
  const Operation operation{.kind = Kind::all_reduce, .count = 1024};
  const auto program = lower_for_multimem(plan_of(Kind::all_reduce, "two_shot", 4), operation);
  ASSERT_TRUE(program.has_value());
  const DeviceProgram plain = make_device_program(*program, operation, 2, 3);
  const DeviceProgram made = make_multimem_program(*program, operation, 2, 3);
  ASSERT_EQ(made.instructions.size(), plain.instructions.size());
  EXPECT_EQ(made.waits.size(), plain.waits.size());
  EXPECT_EQ(made.listeners, plain.listeners);
  const auto one = std::find_if(made.sources.begin(), made.sources.end(),
                                [](const DevicePlace& p) { return p.buffer == kMulticast; });
  ASSERT_NE(one, made.sources.end());
  EXPECT_EQ(one->rank, 2);
  EXPECT_LT(made.sources.size(), plain.sources.size());
  EXPECT_LT(made.destinations.size(), plain.destinations.size());
}

}  // namespace
}  // namespace lockstep::executors::cuda
