#include "schedules/step/memory.h"

#include <gtest/gtest.h>

#include "schedules/passes/offload.h"
#include "schedules/passes/reduce_gradients.h"
#include "schedules/passes/sharding.h"
#include "schedules/passes/steps_for_tests.h"
#include "schedules/play.h"

namespace lockstep::schedules {
namespace {

using PartBytes = std::vector<std::vector<ActivationBytes>>;

std::int64_t most(const RankMemory& memory, Held kind) {
  return peak_of(memory).most_of[static_cast<std::size_t>(kind)];
}

// Peaks equal count_ranks(), for whole actions and for pieces.
TEST(StepMemory, PeaksAreThoseOfTheLists) {
  for_every_schedule(5, [](const CatalogueEntry&, const PipelineShape& shape, const Schedule& schedule) {
    const auto counts = count_ranks(schedule);
    if (evicts_activations(schedule)) return;  // count_ranks() assumes no times for evictions; see catalogue_test.cpp
    Step whole = lower(schedule, std::vector<StageCosts>(num_works(schedule), {10, 10, 10, 1}));
    for (const Step& step : {whole, step_of_parts(schedule, 3, 1)}) {
      const StepTimeline timeline = play_simply(step);
      const auto memory = memory_over_time(step, timeline, PartBytes(num_works(schedule), {{3, 5}}));
      for (std::size_t r = 0; r < counts.size(); ++r) {
        const double unit = schedule.chunks() * schedule.slices();
        EXPECT_DOUBLE_EQ(static_cast<double>(most(memory[r], Held::activations)),
                         3 * unit * counts[r].peak.until_input_gradient)
            << schedule.name << " " << shape.ranks << " " << shape.microbatches;
        EXPECT_DOUBLE_EQ(static_cast<double>(most(memory[r], Held::weight_activations)),
                         5 * unit * counts[r].peak.until_weight_gradient);
        for (const MemoryCurve& curve : memory[r]) {
          EXPECT_TRUE(curve.empty() || curve.back().bytes == 0);
          for (const MemoryPoint& point : curve) EXPECT_GE(point.bytes, 0);
        }
      }
    }
  });
}

TEST(StepMemory, GatheredUnitsAndUnreducedGradientsAreThereAsLongAsTheyAreHeld) {
  const std::vector<std::vector<Unit>> units(1, {{.first_part = 0, .parameter_bytes = 100, .gradient_bytes = 7},
                                                 {.first_part = 1, .parameter_bytes = 60, .gradient_bytes = 7},
                                                 {.first_part = 2, .parameter_bytes = 30, .gradient_bytes = 7}});
  const auto peak = [&](Keep keep, std::int32_t in_flight) {
    Step step = step_of_parts(make_schedule("1f1b", {1, 2, 1}), 3, 8);
    reduce_gradients(step, std::vector<std::vector<GradientBucket>>(1, buckets_of(units[0])),
                     {.comm = Comm::reduce_scatter, .every_microbatch = true});
    shard_parameters(step, units, {.keep = keep, .in_flight = in_flight});
    const StepTimeline timeline = play_simply(step, {.collective = [](const Task&) { return 5; }});
    return peak_of(memory_over_time(step, timeline, PartBytes(1, {{}}))[0]);
  };
  const auto parameters = static_cast<std::size_t>(Held::parameters);
  EXPECT_EQ(peak(Keep::always, 2).most_of[parameters], 190);
  EXPECT_EQ(peak(Keep::while_used, 2).most_of[parameters], 160);
  EXPECT_EQ(peak(Keep::while_used, 1).most_of[parameters], 100);
  EXPECT_EQ(peak(Keep::while_used, 2).most_of[static_cast<std::size_t>(Held::gradients)], 7);
}

TEST(StepMemory, OffloadedActivationsAreNotHeld) {
  Step step = lower(make_schedule("gpipe", {1, 8, 1}), std::vector<StageCosts>(1, {10, 10, 10, 1}));
  const PartBytes bytes(1, {{0, 4}});
  const auto held = [&] { return most(memory_over_time(step, play_simply(step), bytes)[0], Held::weight_activations); };
  EXPECT_EQ(held(), 8 * 4);
  offload_activations(step, std::vector<std::vector<CopyCosts>>(1, {{1, 5, 5}}));
  EXPECT_LE(held(), 3 * 4);
  EXPECT_GE(held(), 4);
}

TEST(StepMemory, ThePeakSaysWhatItIsMadeOf) {
  RankMemory memory;
  memory[0] = {{0, 5}, {10, 2}, {20, 0}};
  memory[2] = {{5, 1}, {10, 6}, {15, 0}};
  const MemoryPeak peak = peak_of(memory);
  EXPECT_EQ(peak.time_ps, 10);
  EXPECT_EQ(peak.bytes, 8);
  EXPECT_EQ(peak.of_kinds[0], 2);
  EXPECT_EQ(peak.most_of[0], 5);
  EXPECT_EQ(peak.most_of[2], 6);
}

}  // namespace
}  // namespace lockstep::schedules
