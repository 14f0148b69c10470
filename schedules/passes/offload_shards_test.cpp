#include "schedules/passes/offload_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "schedules/generators/catalogue.h"
#include "schedules/passes/recipes_for_tests.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/sharding.h"
#include "schedules/step/check_step.h"

namespace lockstep::schedules {
namespace {

constexpr std::int32_t kUnits = 3;

// Units of one part each, on a pipeline stage with two data-parallel ranks.
std::vector<std::vector<Unit>> units(std::size_t stages) {
  std::vector<Unit> of_stage;
  for (std::int32_t part = 0; part < kUnits; ++part) {
    of_stage.push_back({.first_part = part, .parameter_bytes = 8, .gradient_bytes = 16, .held = part == 0});
  }
  return std::vector<std::vector<Unit>>(stages, of_stage);
}

Step sharded_step(std::int32_t ranks, std::int32_t microbatches, bool over_replicas) {
  Step step = step_of_parts(make_schedule("1f1b", {ranks, microbatches, 1}), kUnits, 2);
  for (std::int32_t r = 0; r < ranks; ++r) step.groups.push_back({GroupKind::replicas, {r}, 2});
  const auto all = units(static_cast<std::size_t>(ranks));
  std::vector<std::vector<GradientBucket>> buckets;
  for (const auto& of_stage : all) buckets.push_back(buckets_of(of_stage));
  reduce_gradients(step, buckets,
                   {.comm = Comm::reduce_scatter, .every_microbatch = true, .over_replicas = over_replicas});
  shard_parameters(step, all, {});
  return step;
}

struct Counted {
  std::int64_t most_shards = 0;  // most shards at once that were loaded or reduced and not yet freed
  std::int64_t copies = 0;
};

// Walks the list in issue order, which a lane always keeps.
Counted loads_of(const RankStep& rank) {
  Counted counted;
  std::int64_t shards = 0;
  std::map<std::int32_t, bool> loaded;
  for (const Task& task : rank.tasks) {
    if (copies(task, Copied::parameters)) {
      EXPECT_FALSE(std::exchange(loaded[task.part], true)) << "loaded twice for one gather";
      counted.most_shards = std::max(counted.most_shards, ++shards);
      ++counted.copies;
    }
    if (task.op != Op::unshard) continue;
    EXPECT_TRUE(std::exchange(loaded[task.part], false)) << "gathered without its shard";
    --shards;
  }
  return counted;
}

TEST(LoadParameters, EveryGatherHasItsShardAndNoMoreComeAheadThanAllowed) {
  for (const std::int32_t ranks : {1, 2, 4}) {
    for (const std::int32_t microbatches : {4, 8}) {
      for (const std::int32_t ahead : {0, 1, 2, 5}) {
        Step step = sharded_step(ranks, microbatches, false);
        const std::size_t before = step.of_rank[0].tasks.size();
        load_parameters(
            step, [](std::int32_t, std::int32_t) { return 7; }, ahead);
        EXPECT_TRUE(check_step(step).empty());
        for (const RankStep& rank : step.of_rank) {
          const Counted counted = loads_of(rank);
          EXPECT_LE(counted.most_shards, ahead + 1);
          EXPECT_GT(counted.copies, 0);
        }
        EXPECT_EQ(static_cast<std::int64_t>(step.of_rank[0].tasks.size() - before), loads_of(step.of_rank[0]).copies);
      }
    }
  }
}

TEST(OffloadGradients, EveryReducedShardLeavesBeforeItsBucketIsReducedAgain) {
  for (const bool over_replicas : {false, true}) {
    for (const std::int32_t microbatches : {1, 2, 4}) {
      Step step = sharded_step(1, microbatches, over_replicas);
      std::vector<bool> adds;
      offload_gradients(
          step,
          [&](std::int32_t, std::int32_t, bool to_earlier) {
            adds.push_back(to_earlier);
            return to_earlier ? 9 : 3;
          },
          1);
      EXPECT_TRUE(check_step(step).empty());
      EXPECT_EQ(std::count(adds.begin(), adds.end(), false), kUnits);
      EXPECT_EQ(adds.size(), static_cast<std::size_t>(kUnits * microbatches));
      const RankStep& rank = step.of_rank[0];
      std::map<std::int32_t, std::uint32_t> left;  // OFFLOAD of each bucket
      for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
        const Task& task = rank.tasks[i];
        const auto after = rank.after_of(task);
        if (task.op == Op::reduce_grad && task.lane == Lane::reduce && left.contains(task.part)) {
          EXPECT_NE(std::find(after.begin(), after.end(), left.at(task.part)), after.end());
        }
        if (!copies(task, Copied::gradients)) continue;
        EXPECT_EQ(task.amount, left.contains(task.part) ? 9 : 3);
        ASSERT_EQ(after.size(), 1u);
        EXPECT_EQ(rank.tasks[after[0]].lane, over_replicas ? Lane::replicas : Lane::reduce);
        left[task.part] = i;
      }
    }
  }
}

// Slow offloads delay the backward, so that shards do not pile up on the device.
TEST(OffloadGradients, TheBackwardWaitsForAllButTheLast) {
  for (const std::int32_t ahead : {0, 1, 2}) {
    Step step = sharded_step(1, 4, false);
    offload_gradients(
        step, [](std::int32_t, std::int32_t, bool) { return 1'000'000; }, ahead);
    const RankStep& rank = step.of_rank[0];
    std::int64_t reduced = 0;
    std::int64_t copies_waited_for = 0;
    for (const Task& task : rank.tasks) {
      for (const std::uint32_t earlier : rank.after_of(task)) {
        const Task& other = rank.tasks[earlier];
        if (task.lane != Lane::compute || !copies(other, Copied::gradients)) continue;
        copies_waited_for = 1 + std::count_if(rank.tasks.begin(), rank.tasks.begin() + earlier,
                                              [](const Task& one) { return copies(one, Copied::gradients); });
      }
      if (task.lane == Lane::compute) {
        EXPECT_LE(reduced - copies_waited_for, ahead + 1);
      }
      if (task.op == Op::reduce_grad) ++reduced;
    }
  }
}

}  // namespace
}  // namespace lockstep::schedules
