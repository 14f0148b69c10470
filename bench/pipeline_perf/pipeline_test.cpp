#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "bench/pipeline_perf/cases.h"
#include "bench/pipeline_perf/overlap.h"
#include "core/error.h"
#include "schedules/play.h"
#include "schedules/step/buckets.h"

namespace lockstep::pipeline {
namespace {

PipelineFlags all_schedules(const schedules::Times& times_ms) {
  PipelineFlags flags;
  flags.schedules = {"all"};
  flags.stages = {2, 4};
  flags.microbatches = {8, 16};
  flags.times_ms = times_ms;
  return flags;
}

// The event engine on the lowered step and play() on the lists give equal times.
TEST(Pipeline, SimulatedTimesAreThoseOfThePlayedLists) {
  for (const schedules::Times& times : {schedules::Times{1, 1, 1, 0}, schedules::Times{1, 1.25, 0.75, 0.125}}) {
    const PipelineFlags flags = all_schedules(times);
    const Cases cases = make_cases(flags);
    EXPECT_GT(cases.all.size(), 70U);
    for (const Case& bench_case : cases.all) {
      const Result result = run_case(bench_case, flags);
      const auto spans = schedules::spans_of(bench_case.schedule, times, schedules::play(bench_case.schedule, times));
      EXPECT_NEAR(result.spans.makespan, spans.makespan, 1e-6) << bench_case.name;
      EXPECT_NEAR(result.spans.own, spans.own, 1e-6) << bench_case.name;
      EXPECT_DOUBLE_EQ(result.simulated_ms, result.spans.makespan) << bench_case.name;
      if (!result.closed_form) continue;
      const double form = result.closed_form->of_makespan ? result.spans.makespan : result.spans.own;
      EXPECT_NEAR(form, result.closed_form->cost, 1e-6) << bench_case.name;
    }
  }
}

double value_at(const std::vector<core::MemoryPoint>& points, double time_ms) {
  double value = 0;
  for (const core::MemoryPoint& point : points) {
    if (point.time_ms <= time_ms) value = point.value;
  }
  return value;
}

double peak_of_sum(const std::vector<core::MemoryPoint>& one, const std::vector<core::MemoryPoint>& other) {
  double peak = 0;
  for (const auto* points : {&one, &other}) {
    for (const auto& point : *points) {
      peak = std::max(peak, value_at(one, point.time_ms) + value_at(other, point.time_ms));
    }
  }
  return peak;
}

// The peaks of memory over time equal the lists' counts, and memory ends empty.
TEST(Pipeline, MemoryOverTimeHasTheCountedPeaks) {
  PipelineFlags flags = all_schedules({1, 1, 1, 0});
  flags.w_memory = 0.25;
  for (const Case& bench_case : make_cases(flags).all) {
    const Result result = run_case(bench_case, flags);
    const core::MemoryRecord memory =
        activations_over_time(bench_case.schedule, result.step, result.timeline, flags.w_share());
    for (std::size_t r = 0; r < memory.of_rank.size(); ++r) {
      const auto& points = memory.of_rank[r].at("until_b");
      double peak = 0;
      for (const auto& point : points) peak = std::max(peak, point.value);
      EXPECT_DOUBLE_EQ(peak, result.counts[r].peak.until_input_gradient) << bench_case.name << " rank " << r;
      EXPECT_DOUBLE_EQ(points.back().value, 0) << bench_case.name;
      EXPECT_NEAR(peak_of_sum(points, memory.of_rank[r].at("until_w")), result.counts[r].peak.until_weight_gradient,
                  1e-9)
          << bench_case.name << " rank " << r;
      EXPECT_DOUBLE_EQ(memory.of_rank[r].at("until_w").back().value, 0) << bench_case.name;
    }
  }
}

// Every named schedule, with one or two pipes, with work for the bubbles of several steps: no step gets longer (checked
// by fill(), and here for the total), all of the work is done once, and the filled share equals the work.
TEST(Pipeline, WorkInBubblesMakesNoStepLonger) {
  PipelineFlags flags = all_schedules({1, 1.25, 0.75, 0.125});
  flags.microbatches = {8};
  flags.filler = {.input_curvature = 0.6, .output_curvature = 0.6, .inversion = 0.8, .work = 1, .precondition = 0.5};
  flags.filler.layers = 8;
  std::size_t several = 0;
  for (const Case& bench_case : make_cases(flags).all) {
    const Result result = run_case(bench_case, flags);
    ASSERT_TRUE(result.filled) << bench_case.name;
    const Filled& filled = *result.filled;
    double filler_ms = 0;
    for (const schedules::Step& step : filled.steps) {
      for (const schedules::RankStep& rank : step.of_rank) {
        for (const schedules::Task& task : rank.tasks) {
          if (schedules::is_filler(task.op)) filler_ms += static_cast<double>(task.amount) / 1e9;
        }
      }
    }
    const double pipes = bench_case.schedule.num_pipes();
    const double wanted = 8 * 1.2 + pipes * 0.8 + 1;  // per rank: each microbatch goes through one of the pipes
    EXPECT_NEAR(filler_ms, wanted * bench_case.shape.ranks, 1e-6) << bench_case.name;
    EXPECT_GT(filled.filled, 0) << bench_case.name;
    EXPECT_LE(filled.filled, 1) << bench_case.name;
    EXPECT_GT(filled.utilization, filled.utilization_without) << bench_case.name;
    EXPECT_DOUBLE_EQ(result.simulated_ms, filled.makespan_without_ms) << bench_case.name;
    EXPECT_NEAR(result.spans.makespan, result.simulated_ms, 1e-6) << bench_case.name;
    several += filled.steps.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(several, 10U);
}

TEST(Pipeline, AKernelThatFitsIntoNoBubbleIsRefused) {
  PipelineFlags flags;
  flags.filler.inversion = 100;
  const Cases cases = make_cases(flags);
  try {
    run_case(cases.all.front(), flags);
    FAIL() << "a kernel of 50 ms";
  } catch (const core::Error& error) {
    EXPECT_NE(std::string(error.what()).find("INVERT takes 50"), std::string::npos) << error.what();
  }
}

TEST(Recurrence, ABucketWaitsForItsGradientsAndForTheBucketBefore) {
  const std::vector<schedules::BucketTimes> buckets{{1, 2}, {2, 2}, {10, 1}};
  EXPECT_DOUBLE_EQ(schedules::end_of_buckets_ms(std::span(buckets).first(1)), 3);
  EXPECT_DOUBLE_EQ(schedules::end_of_buckets_ms(std::span(buckets).first(2)), 5);
  EXPECT_DOUBLE_EQ(schedules::end_of_buckets_ms(buckets), 11);
}

OverlapFlags flags_of(int replicas) {
  OverlapFlags flags;
  flags.layers = 6;
  flags.tensors_per_layer = 3;
  flags.bytes_per_layer = std::int64_t{3'000'000} * replicas;  // divisible into n whole parts
  flags.link = {.latency_us = 30, .gbps = 2};
  return flags;
}

// One stream of communication, whose collectives run message by message by their plans: exact to the picosecond.
TEST(Overlap, GradientBucketsMeetTheRecurrence) {
  for (const int replicas : {1, 2, 3, 4, 8}) {
    for (const double cap_mb : {1.0, 4.0, 25.0, 1e5}) {
      for (const int microbatches : {1, 3}) {
        OverlapFlags flags = flags_of(replicas);
        flags.microbatches = microbatches;
        const OverlapResult result = run_overlap(flags, {replicas, 0, cap_mb});
        ASSERT_TRUE(result.closed_form_ms.has_value());
        EXPECT_NEAR(result.step_ms, *result.closed_form_ms, 1e-6) << replicas << " " << cap_mb << " " << microbatches;
        EXPECT_DOUBLE_EQ(result.compute_ms, microbatches * 6 * 3.0);
      }
    }
  }
}

TEST(Overlap, SmallBucketsPayLatencyAndOneLargeBucketHidesNothing) {
  const OverlapFlags flags = flags_of(4);
  const OverlapResult small = run_overlap(flags, {4, 0, 1});
  const OverlapResult large = run_overlap(flags, {4, 0, 1e5});
  EXPECT_GT(small.collectives, large.collectives);
  EXPECT_GT(small.communication_ms, large.communication_ms);
  EXPECT_LT(large.hidden().value, small.hidden().value);
  // All but the first tensor, which fills the first bucket of 1 MiB, are reduced after the backward.
  EXPECT_EQ(large.collectives, 2);
}

// Rajbhandari et al. 2019, section 7, at m microbatches; in units of the parameters' bytes times (n-1)/n.
TEST(Overlap, ZeroSendsWhatTheFormulasSay) {
  OverlapFlags flags = flags_of(4);
  const double psi = 6.0 * static_cast<double>(flags.bytes_per_layer) * 3 / 4;
  for (const int m : {1, 4}) {
    flags.microbatches = m;
    EXPECT_DOUBLE_EQ(run_overlap(flags, {4, 0, 4}).sent_bytes, 2 * psi);
    EXPECT_DOUBLE_EQ(run_overlap(flags, {4, 1, 4}).sent_bytes, 2 * psi);
    EXPECT_DOUBLE_EQ(run_overlap(flags, {4, 2, 4}).sent_bytes, (m + 1) * psi);
    EXPECT_DOUBLE_EQ(run_overlap(flags, {4, 3, 4}).sent_bytes, 3 * m * psi);
  }
}

TEST(Overlap, GatheringAheadHidesParameters) {
  OverlapFlags flags = flags_of(4);
  flags.link.gbps = 50;  // fast enough to be hidden
  flags.prefetch = 0;
  const OverlapResult none = run_overlap(flags, {4, 3, 25});
  flags.prefetch = 1;
  const OverlapResult result = run_overlap(flags, {4, 3, 25});
  EXPECT_LT(result.step_ms, none.step_ms);
  EXPECT_GE(result.step_ms, result.compute_ms);
}

// However late threads wake up, nothing is faster than its plan.
TEST(Overlap, EmulatedStepsAreNoFasterThanSimulatedOnes) {
  OverlapFlags flags = flags_of(3);
  flags.mode = Mode::emulated;
  flags.repeat = 1;
  for (const int zero_stage : {0, 1, 2, 3}) {
    const OverlapResult result = run_overlap(flags, {3, zero_stage, 4});
    EXPECT_GE(result.step_ms, result.compute_ms);
    if (zero_stage == 0) {
      EXPECT_GE(result.step_ms, result.simulated_ms * 0.999);
    }
    EXPECT_EQ(result.emulation->samples_ms.size(), 1U);
  }
}

TEST(Overlap, AnAlgorithmThatIsNotThereIsRefused) {
  OverlapFlags flags = flags_of(2);
  flags.algorithm = "pigeon";
  EXPECT_THROW(run_overlap(flags, {2, 0, 25}), core::Error);
}

}  // namespace
}  // namespace lockstep::pipeline
