#include "schedules/passes/offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/generators/every_schedule.h"
#include "schedules/passes/recipes_for_tests.h"
#include "schedules/step/check_step.h"
#include "schedules/step/memory.h"
#include "schedules/step/simple_play.h"

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
  const Schedule one = make_schedule("gpipe", {1, 1, 1});
  EXPECT_EQ(text_of(offloaded(one, 1, 0).of_rank[0]), "F0 O0 F1 O1 F2 O2 L2 B2 L1 B1 L0 B0");
  EXPECT_EQ(text_of(offloaded(one, 1, 1).of_rank[0]), "F0 F1 O0 F2 O1 L1 B2 L0 B1 B0");
  EXPECT_EQ(text_of(offloaded(one, 1, 2).of_rank[0]), "F0 F1 F2 O0 L0 B2 B1 B0");
  EXPECT_EQ(text_of(offloaded(one, 1, 3).of_rank[0]), "F0 F1 F2 B2 B1 B0") << "it would come back at once";
  EXPECT_EQ(text_of(offloaded(one, 1, 0, 0).of_rank[0]), "F0 F1 F2 B2 B1 B0") << "nothing is kept";
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
  std::int64_t last = 0;
  for (const std::vector<TaskSpan>& rank : play_simply(step)) {
    for (const TaskSpan& span : rank) last = std::max(last, span.end_ps);
  }
  return last;
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

}  // namespace
}  // namespace lockstep::schedules
