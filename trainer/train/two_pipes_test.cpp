// Schedules with two pipes in opposite directions: every stage is on two ranks, whose gradients are summed.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "trainer/checkpoint/files_for_tests.h"
#include "trainer/train/run_for_tests.h"

namespace lockstep::trainer {
namespace {

void compare(const workload::Layout& layout, std::int64_t steps = kSteps) {
  static std::map<std::int64_t, TrainResult> of_one_rank;
  const auto [one, is_new] = of_one_rank.try_emplace(steps);
  if (is_new) one->second = run(options_of({}, steps));
  EXPECT_EQ(difference(one->second, run(options_of(layout, steps)), 1e-5), "") << text_of(layout);
}

std::vector<workload::Layout> two_pipes() {
  return {{.pp = 2, .schedule = "chimera", .microbatches = 2},
          {.pp = 2, .schedule = "chimera", .microbatches = 8},
          {.pp = 4, .schedule = "chimera", .microbatches = 4},
          {.pp = 2, .schedule = "chimera_doubled", .microbatches = 4},
          {.pp = 4, .schedule = "chimera_doubled", .microbatches = 16},
          {.pp = 2, .schedule = "dualpipe", .microbatches = 4},
          {.pp = 4, .schedule = "dualpipe", .microbatches = 8}};
}

TEST(TwoPipes, GiveTheLossesOfOneRank) {
  for (const workload::Layout& layout : two_pipes()) compare(layout, 20);
}

// pairs_test.cpp has every pair of options.
TEST(TwoPipes, WithDataTensorParallelRanksAndShards) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    workload::Layout layout = two_pipes()[zero % 2 == 0 ? 3 : 5];
    layout.zero = zero;
    layout.bucket_cap_bytes = 20'000;
    compare(layout);  // sharded over the two ranks of a stage
    layout.dp = 2;
    layout.recompute = static_cast<workload::Recompute>(zero % 3);
    compare(layout);
    layout.shard_ranks = zero > 0 ? 2 : 0;  // the copies are replicas
    layout.tp = 2;
    layout.sequence_parallel = true;
    compare(layout);
  }
  compare({.pp = 4, .zero = 3, .schedule = "dualpipe", .microbatches = 8, .prefetch = false});
  compare({.pp = 4, .zero = 2, .schedule = "chimera", .microbatches = 4, .overlap_gradients = false});
}

// By step, place of the stage in its pipe, parameter: what a rank has of it.
using Weights = std::map<std::tuple<std::int64_t, std::int32_t, std::size_t>, std::vector<std::byte>>;

std::vector<std::byte> bytes_of(const kernels::In& weight) {
  const auto* const begin = static_cast<const std::byte*>(weight.data);
  return {begin, begin + kernels::size_bytes(weight.dtype, weight.elems)};
}

std::vector<Weights> weights_of_ranks(const TrainOptions& options) {
  std::vector<Weights> of_rank(static_cast<std::size_t>(options.layout.ranks()));
  const Corpus corpus = Corpus::synthetic(options.seed, options.synthetic_bytes, options.model.sequence);
  run_trainers(options, corpus, [&](const TrainStep& made, RankTrainer& trainer) {
    Weights& weights = of_rank[static_cast<std::size_t>(trainer.model().rank())];
    for (std::int64_t step = 1; step <= options.steps; ++step) {
      trainer.train_step(step);
      for (const RankStage& stage : trainer.model().stages()) {
        const std::int32_t place = stage.stage % made.step.stages_per_pipe;
        for (std::size_t p = 0; p < stage.plan->parameters.size(); ++p) {
          weights[{step, place, p}] = bytes_of(stage.store->weight(p));
        }
      }
    }
  });
  return of_rank;
}

void expect_same_copies(const TrainOptions& options) {
  const std::vector<Weights> of_rank = weights_of_ranks(options);
  const workload::Layout& layout = options.layout;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const workload::Coordinates first = data_rank_at(layout, coordinates_of(layout, rank), 0);
    const Weights& expected = of_rank[static_cast<std::size_t>(rank_at(layout, first))];
    ASSERT_FALSE(expected.empty());
    EXPECT_TRUE(of_rank[static_cast<std::size_t>(rank)] == expected) << text_of(layout) << ", rank " << rank;
  }
}

TEST(TwoPipes, CopiesOfAStageStayTheSameBits) {
  for (workload::Layout layout : two_pipes()) {
    for (const std::int32_t zero : {0, 1}) {
      layout.zero = zero;
      expect_same_copies(options_of(layout));
    }
  }
  TrainOptions options = options_of({.dp = 2, .pp = 2, .zero = 2, .schedule = "dualpipe", .microbatches = 4});
  options.layout.compute = core::DType::bf16;
  expect_same_copies(options);
  options = options_of({.pp = 4, .schedule = "chimera", .microbatches = 4});
  options.layout.compression = workload::CompressionWay::int8;
  expect_same_copies(options);
}

TEST(TwoPipes, EndInCheckpointsOfAnyLayout) {
  const workload::Layout layouts[] = {{.microbatches = 2},
                                      {.pp = 2, .schedule = "chimera", .microbatches = 4},
                                      {.dp = 2, .pp = 2, .zero = 3, .schedule = "dualpipe", .microbatches = 4}};
  const TrainResult one = run(workload::Layout{});
  for (const workload::Layout& before : layouts) {
    for (const workload::Layout& after : layouts) {
      const TemporaryFolder folder;
      TrainOptions options = options_of(before);
      options.steps = 3;
      options.checkpoint_folder = folder / "checkpoints";
      run(options);
      TrainOptions rest = options_of(after);
      rest.resume = options.checkpoint_folder;
      const TrainResult resumed = run(rest);
      ASSERT_EQ(resumed.steps.size(), 2u);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(resumed.steps[i].loss, one.steps[3 + i].loss, 1e-5 * one.steps[3 + i].loss)
            << text_of(before) << ", then " << text_of(after);
      }
    }
  }
}

// Both ends make logits of the text: each has microbatches with it.
TEST(TwoPipes, WriteTheSameText) {
  const auto written = [](const workload::Layout& layout) {
    TrainOptions options = options_of(layout);
    options.sample_tokens = 8;
    options.temperature = 0;
    return run(options).sample;
  };
  const std::string expected = written({});
  EXPECT_EQ(expected.size(), 8u);
  EXPECT_EQ(written({.pp = 2, .schedule = "chimera", .microbatches = 2}), expected);
  EXPECT_EQ(written({.tp = 2, .pp = 2, .schedule = "dualpipe", .microbatches = 4}), expected);
}

TEST(TwoPipes, TakeTheMemoryThatWasPredicted) {
  for (const workload::Layout& layout : two_pipes())
    EXPECT_EQ(memory_difference(options_of(layout)), "") << text_of(layout);
}

}  // namespace
}  // namespace lockstep::trainer
