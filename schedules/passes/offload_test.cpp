#include "schedules/passes/passes.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/generators/catalogue.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

constexpr std::int32_t kParts = 3;

Step offloaded(const Schedule& schedule, std::int64_t copy_ps, std::int32_t ahead, std::int64_t bytes = 1) {
  Step step = step_of_parts(schedule, kParts, 1);
  offload_activations(step,
                      std::vector<std::vector<CopyCosts>>(static_cast<std::size_t>(step.num_stages()),
                                                          std::vector<CopyCosts>(kParts, {bytes, copy_ps, copy_ps})),
                      ahead);
  return step;
}

// "F0 F1 OFFLOAD0": actions with their parts.
std::string text_of(const RankStep& rank) {
  std::string text;
  for (const Task& task : rank.tasks) {
    const char* const op = task.op == Op::forward    ? "F"
                           : task.op == Op::backward ? "B"
                           : task.op == Op::load     ? "L"
                                                     : "O";
    text += (text.empty() ? "" : " ") + std::string(op) + std::to_string(task.part);
  }
  return text;
}

TEST(Offload, CopiesStandWhereTheirMemoryComesAndGoes) {
  const Schedule schedule = make_schedule("gpipe", {1, 1, 1});
  EXPECT_EQ(text_of(offloaded(schedule, 1, 0).of_rank[0]), "F0 O0 F1 O1 F2 O2 L2 B2 L1 B1 L0 B0");
  EXPECT_EQ(text_of(offloaded(schedule, 1, 1).of_rank[0]), "F0 F1 O0 F2 O1 L1 B2 L0 B1 B0");
  EXPECT_EQ(text_of(offloaded(schedule, 1, 2).of_rank[0]), "F0 F1 F2 O0 L0 B2 B1 B0");
  EXPECT_EQ(text_of(offloaded(schedule, 1, 3).of_rank[0]), "F0 F1 F2 B2 B1 B0") << "it would come back at once";
  EXPECT_EQ(text_of(offloaded(schedule, 1, 0, 0).of_rank[0]), "F0 F1 F2 B2 B1 B0") << "nothing is kept";
}

// The bound holds however slow copies are: kernels wait for them.
TEST(Offload, HoldsWhatAFewPiecesOfWorkKeep) {
  int checked = 0;
  for_every_schedule(4, [&](const CatalogueEntry&, const PipelineShape& shape, const Schedule& schedule) {
    if (shape.microbatches > 5 || schedule.slices() > 1 || evicts_activations(schedule)) return;
    for (const std::int32_t ahead : {0, 2}) {
      for (const std::int64_t copy_ps : {1, 500}) {
        const Step step = offloaded(schedule, copy_ps, ahead);
        ASSERT_TRUE(check_step(step).empty()) << schedule.name << ", ahead " << ahead;
        const std::vector<std::vector<ActivationBytes>> bytes(static_cast<std::size_t>(step.num_stages()),
                                                              std::vector<ActivationBytes>(kParts, {1, 0}));
        for (const RankMemory& rank : memory_over_time(step, play_simply(step), bytes)) {
          EXPECT_LE(peak_of(rank).most_of[static_cast<std::size_t>(Held::activations)], 2 * ahead + 1)
              << schedule.name << " " << shape.ranks << " " << shape.microbatches << ", ahead " << ahead;
        }
        ++checked;
      }
    }
  });
  EXPECT_GT(checked, 100);
}

std::int64_t end_of(const Step& step) {
  return end_of(play_simply(step));
}

TEST(Offload, ActivationsAreBackInTimeIfCopiesAreFast) {
  const auto whole_stages = [](std::int64_t copy_ps) {
    return std::vector<std::vector<CopyCosts>>(4, {{1, copy_ps, copy_ps}});
  };
  const Schedule schedule = make_schedule("1f1b", {4, 8, 1});
  const auto end = [&](std::int64_t copy_ps, std::int32_t ahead) {
    Step step = lower(schedule, std::vector<StageCosts>(4, {10, 10, 10, 1}));
    offload_activations(step, whole_stages(copy_ps), ahead);
    return end_of(step);
  };
  constexpr std::int64_t kWithout = 330;  // (m + p - 1) 30
  EXPECT_EQ(end(5, 1), kWithout);
  EXPECT_GT(end(5, 0), kWithout);   // each load is exposed
  EXPECT_GT(end(40, 1), kWithout);  // copies take longer than the kernels
  Step last_rank = lower(schedule, std::vector<StageCosts>(4));
  offload_activations(last_rank, whole_stages(1), 1);
  const auto copies = [&](std::size_t rank) {
    const std::vector<Task>& tasks = last_rank.of_rank[rank].tasks;
    return std::count_if(tasks.begin(), tasks.end(), copies_activations);
  };
  EXPECT_EQ(copies(3), 0);
  EXPECT_GT(copies(0), 0);
}

// Copies that are faster than the kernels they overlap cost nothing; slower ones cost bytes / bandwidth.
TEST(Offload, TheStepTakesTheLongerOfKernelsAndCopies) {
  const auto makespan = [](std::int64_t copy_ps) {
    return static_cast<double>(end_of(offloaded(make_schedule("gpipe", {1, 16, 1}), copy_ps, 1)));
  };
  const double kernels = 16 * kParts * 30;
  EXPECT_EQ(makespan(5), kernels);
  EXPECT_NEAR(makespan(100), 16 * kParts * 2 * 100, 0.05 * 16 * kParts * 2 * 100);
}

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
                                              [](const Task& copy) { return copies(copy, Copied::gradients); });
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
