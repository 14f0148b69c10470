#include "schedules/step/breakdown.h"

#include <gtest/gtest.h>

#include "schedules/passes/passes.h"
#include "schedules/play.h"
#include "schedules/step/rewrite.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

// Two ranks: a kernel, a collective of both in the reduce lane, a kernel that waits for it.
Step two_ranks() {
  Step step{.name = "two"};
  step.groups.push_back({GroupKind::data, {0, 1}, 2});
  RankStep rank;
  rank.tasks = {{.op = Op::forward, .stage = 0, .microbatch = 0},
                {.op = Op::reduce_grad, .lane = Lane::reduce, .comm = Comm::all_reduce, .stage = 0, .peer = 0},
                {.op = Op::optimizer}};
  rank.after = {0, 1};
  rank.tasks[1].num_after = 1;
  rank.tasks[2].first_after = 1;
  rank.tasks[2].num_after = 1;
  step.of_rank = {rank, rank};
  return step;
}

// The first rank came 6 ps before the second: that time is a wait for a rank. Bytes move in the 4 ps after it.
TEST(WhenBytesMove, ACollectiveBeginsWithItsLastMember) {
  const Step step = two_ranks();
  const StepTimeline ran{{{0, 10}, {10, 20}, {20, 21}}, {{0, 16}, {16, 20}, {20, 21}}};
  const StepTimeline moved = when_bytes_move(step, ran);
  EXPECT_EQ(moved[0][1].start_ps, 16);
  EXPECT_EQ(moved[1][1].start_ps, 16);
  const auto parts = breakdown_of(step, moved);
  EXPECT_EQ(parts[0].exposed_ps[static_cast<std::size_t>(Lane::reduce)], 4);
  EXPECT_EQ(parts[0].bubble_ps, 6);
  EXPECT_EQ(parts[1].exposed_ps[static_cast<std::size_t>(Lane::reduce)], 4);
  EXPECT_EQ(parts[1].bubble_ps, 0);
}

TEST(WhenBytesMove, AReceiveBeginsWithItsSend) {
  Step step{.name = "message"};
  step.of_rank.resize(2);
  step.of_rank[0].tasks = {{.op = Op::send_activations, .lane = Lane::send, .stage = 0, .peer = 1, .tag = 0}};
  step.of_rank[1].tasks = {{.op = Op::recv_activations, .lane = Lane::receive, .stage = 1, .peer = 0, .tag = 0}};
  const StepTimeline moved = when_bytes_move(step, {{{7, 9}}, {{2, 12}}});
  EXPECT_EQ(moved[1][0].start_ps, 7);
  EXPECT_EQ(moved[1][0].end_ps, 12);
  // Clocks that differ a little never turn a span around.
  EXPECT_EQ(when_bytes_move(step, {{{15, 16}}, {{2, 12}}})[1][0].start_ps, 12);
}

constexpr std::size_t kReceive = static_cast<std::size_t>(Lane::receive);
constexpr std::size_t kReduce = static_cast<std::size_t>(Lane::reduce);

// Rank 0 computes for 10, waits until 25 for a message that moves from 18 to 25, computes until 30, reduces two buckets
// from 12 to 20 (nobody waits) and from 30 to 42, steps from 42 to 44. Rank 1 ends at 50.
Step a_step() {
  RankWriter rank;
  const std::uint32_t first = rank.add({.op = Op::forward, .amount = 10});
  const std::uint32_t there[] = {rank.add({.op = Op::recv_gradient, .lane = Lane::receive, .peer = 1, .tag = 0})};
  const std::uint32_t after_first[] = {first};
  rank.add({.op = Op::reduce_grad, .lane = Lane::reduce, .comm = Comm::all_reduce, .peer = 0}, after_first);
  const std::uint32_t backward[] = {rank.add({.op = Op::backward, .amount = 5}, there)};
  const std::uint32_t reduced[] = {
      rank.add({.op = Op::reduce_grad, .lane = Lane::reduce, .comm = Comm::all_reduce, .peer = 0}, backward)};
  rank.add({.op = Op::optimizer, .amount = 2}, reduced);
  RankWriter other;
  other.add({.op = Op::forward, .amount = 50});
  return {.name = "breakdown", .of_rank = {rank.take(), other.take()}, .groups = {{GroupKind::data, {0}, 2}}};
}

TEST(Breakdown, PartsAreTheMakespan) {
  const StepTimeline timeline = {{{0, 10}, {18, 25}, {12, 20}, {25, 30}, {30, 42}, {42, 44}}, {{0, 50}}};
  const std::vector<Breakdown> parts = breakdown_of(a_step(), timeline);
  EXPECT_EQ(parts[0].forward_ps, 10);
  EXPECT_EQ(parts[0].backward_ps, 5);
  EXPECT_EQ(parts[0].optimizer_ps, 2);
  EXPECT_EQ(parts[0].exposed_ps[kReceive], 7);
  EXPECT_EQ(parts[0].exposed_ps[kReduce], 12);
  EXPECT_EQ(parts[0].bubble_ps, 8 + 6);
  for (const Breakdown& rank : parts) EXPECT_EQ(rank.compute_ps() + rank.all_exposed_ps() + rank.bubble_ps, 50);
}

// The same run with kernels and reductions in one thread: the first bucket also blocked the kernels.
TEST(Breakdown, WhatBlocksTheComputeLaneIsExposed) {
  const StepTimeline timeline = {{{0, 10}, {18, 25}, {12, 20}, {25, 30}, {30, 42}, {42, 44}}, {{0, 50}}};
  BlockingLanes blocking = {};
  blocking[kReduce] = true;
  const std::vector<Breakdown> parts = breakdown_of(a_step(), timeline, blocking);
  EXPECT_EQ(parts[0].exposed_ps[kReduce], 8 + 12);
  EXPECT_EQ(parts[0].exposed_ps[kReceive], 5);  // concurrent transfers count for the one that began first
  EXPECT_EQ(parts[0].bubble_ps, 2 + 6);
}

// Two awaited messages move from 10 to 15 and from 12 to 18: 8 ps, not 11.
TEST(Breakdown, MessagesThatMoveAtOnceCountOnce) {
  RankWriter rank;
  rank.add({.op = Op::forward, .amount = 5});
  std::vector<std::uint32_t> both;
  for (const std::int32_t tag : {0, 1}) {
    both.push_back(rank.add({.op = Op::recv_gradient, .lane = Lane::receive, .peer = 1, .tag = tag}));
  }
  rank.add({.op = Op::backward, .amount = 2}, both);
  const Step step{.name = "two", .of_rank = {rank.take()}};
  const std::vector<Breakdown> parts = breakdown_of(step, {{{0, 5}, {10, 15}, {12, 18}, {18, 20}}});
  EXPECT_EQ(parts[0].exposed_ps[kReceive], 8);
  EXPECT_EQ(parts[0].bubble_ps, 5);
}

TEST(Breakdown, WhatALaneStillMovesAtTheEndIsExposed) {
  RankWriter rank;
  const std::uint32_t kernel[] = {rank.add({.op = Op::optimizer, .amount = 10})};
  rank.add({.op = Op::unshard, .lane = Lane::gather, .comm = Comm::all_gather, .peer = 0}, kernel);
  const Step step{.name = "tail", .of_rank = {rank.take()}, .groups = {{GroupKind::data, {0}, 2}}};
  const std::vector<Breakdown> parts = breakdown_of(step, {{{0, 10}, {10, 17}}});
  EXPECT_EQ(parts[0].exposed_ps[static_cast<std::size_t>(Lane::gather)], 7);
  EXPECT_EQ(parts[0].bubble_ps, 0);
}

TEST(Breakdown, OneRankAloneHasNeitherCommunicationNorABubble) {
  RankWriter rank;
  const std::uint32_t kernel[] = {rank.add({.op = Op::backward, .amount = 10})};
  const std::uint32_t reduced[] = {
      rank.add({.op = Op::reduce_grad, .lane = Lane::reduce, .comm = Comm::all_reduce, .peer = 0}, kernel)};
  rank.add({.op = Op::optimizer, .amount = 3}, reduced);
  const Step step{.name = "alone", .of_rank = {rank.take()}, .groups = {{GroupKind::data, {0}}}};
  const Breakdown parts = breakdown_of(step, {{{0, 10}, {10, 17}, {20, 23}}}).front();
  EXPECT_EQ(parts.all_exposed_ps(), 0);
  EXPECT_EQ(parts.bubble_ps, 0);
  EXPECT_EQ(parts.between_ps, 10);
  EXPECT_EQ(parts.compute_ps() + parts.between_ps, 23);
}

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

TEST(StepMemory, ThePeakIsBrokenDown) {
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
