// State shared by the threads of a step: a few steps in which ranks, lanes and kernel threads run concurrently. Small,
// for the thread sanitizer; train_test.cpp and pairs_test.cpp have all layouts.
#include <gtest/gtest.h>

#include "testing/trainer/run.h"

namespace lockstep::trainer {
namespace {

constexpr std::int64_t kFewSteps = 2;

TrainOptions few_steps(const workload::Layout& layout) {
  TrainOptions options = options_of(layout, kFewSteps);
  options.model.layers = 2;
  options.validation_sequences = 4;
  return options;
}

void expect_losses_of_one_rank(const TrainOptions& options, double tolerance = 1e-5) {
  EXPECT_EQ(difference(run(few_steps({})), run(options), tolerance), "") << text_of(options.layout);
}

// Both lanes of collectives have a thread, gathers of ZeRO 3 and reductions overlap with kernels.
TEST(RanksOfAStep, DataTensorAndPipelineWithZero3) {
  expect_losses_of_one_rank(few_steps(all_of_them()));
}

TEST(RanksOfAStep, SplitBackwardsAndRecomputationWithZero2) {
  expect_losses_of_one_rank(few_steps({.dp = 2,
                                       .pp = 2,
                                       .zero = 2,
                                       .schedule = "zb_h1",
                                       .microbatches = 4,
                                       .bucket_cap_bytes = 20'000,
                                       .recompute = workload::Recompute::full}));
}

TEST(RanksOfAStep, ShardsInReplicasWithTwoThreadsARank) {
  TrainOptions options = few_steps({.dp = 4, .zero = 3, .shard_ranks = 2, .bucket_cap_bytes = 20'000});
  options.threads = 2;
  expect_losses_of_one_rank(options);
}

TEST(RanksOfAStep, CompressedGradients) {
  TrainOptions options = few_steps({.dp = 2, .bucket_cap_bytes = 20'000});
  options.layout.compression = workload::CompressionWay::int8;
  expect_losses_of_one_rank(options, 1e-2);
}

TEST(RanksOfAStep, ReplicasThatStepByThemselves) {
  TrainOptions options = few_steps({.dp = 2, .bucket_cap_bytes = 20'000});
  options.sync = parse_sync("server:servers=2");
  expect_losses_of_one_rank(options);
  options.sync = parse_sync("async:staleness=1");
  EXPECT_EQ(run(options).steps.size(), static_cast<std::size_t>(kFewSteps));
}

TEST(RanksOfAStep, CheckpointsThatRanksWriteTogether) {
  const TrainOptions options = few_steps({.dp = 2, .tp = 2, .zero = 1});
  EXPECT_EQ(difference(run(few_steps({})), resumed(options, options, 1), 1e-5), "");
}

}  // namespace
}  // namespace lockstep::trainer
