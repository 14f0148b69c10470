#include <gtest/gtest.h>

#include "bench/pipeline/overlap_result.h"
#include "bench/pipeline/recurrence.h"
#include "core/error.h"

namespace lockstep::pipeline {
namespace {

TEST(Recurrence, ABucketWaitsForItsGradientsAndForTheBucketBefore) {
  const std::vector<BucketTimes> buckets{{1, 2}, {2, 2}, {10, 1}};
  EXPECT_DOUBLE_EQ(end_of_buckets_ms(std::span(buckets).first(1)), 3);
  EXPECT_DOUBLE_EQ(end_of_buckets_ms(std::span(buckets).first(2)), 5);
  EXPECT_DOUBLE_EQ(end_of_buckets_ms(buckets), 11);
}

OverlapFlags flags_of(int replicas) {
  OverlapFlags flags;
  flags.layers = 6;
  flags.tensors_a_layer = 3;
  flags.bytes_a_layer = std::int64_t{3'000'000} * replicas;  // divisible into n whole parts
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
  EXPECT_LT(large.efficiency(), small.efficiency());
  // All but the first tensor, which fills the first bucket of 1 MiB, are reduced after the backward.
  EXPECT_EQ(large.collectives, 2);
}

// Rajbhandari et al. 2019, section 7, at m microbatches; in units of the parameters' bytes times (n-1)/n.
TEST(Overlap, ZeroSendsWhatTheFormulasSay) {
  OverlapFlags flags = flags_of(4);
  const double psi = 6.0 * static_cast<double>(flags.bytes_a_layer) * 3 / 4;
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
  const OverlapResult one = run_overlap(flags, {4, 3, 25});
  EXPECT_LT(one.step_ms, none.step_ms);
  EXPECT_GE(one.step_ms, one.compute_ms);
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
