#include "trainer/step/train_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/error.h"
#include "schedules/catalogue.h"
#include "schedules/step/check_step.h"
#include "schedules/step/count.h"
#include "trainer/step/bucket_plan.h"

namespace lockstep::trainer {
namespace {

using schedules::GroupKind;

GptShape shape_for(const TrainLayout& layout, std::int64_t layers = 8) {
  return {.config = {.name = "test", .layers = layers, .hidden = 32, .heads = 4, .vocabulary = 61, .length = 16},
          .tensor = {layout.tp, 0},
          .sequence_parallel = layout.sequence_parallel,
          .batch = 2,
          .length = 16,
          .recompute = layout.recompute};
}

std::string refusal_of(const TrainLayout& layout, const GptShape& shape) {
  try {
    check_layout(layout, shape.config, shape.batch, shape.length);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

// Ranks of Megatron-LM's groups at tp 2, dp 2, pp 4 (parallel_state.py: "tp-cp-ep-dp-pp").
TEST(TrainLayout, RanksAreNumberedTensorFirstThenDataThenPipeline) {
  const TrainLayout layout{.dp = 2, .tp = 2, .pp = 4};
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank)
    EXPECT_EQ(rank_at(layout, coordinates_of(layout, rank)), rank);
  EXPECT_EQ(coordinates_of(layout, 6).dp, 1);
  const TrainStep made = make_train_step(shape_for(layout), layout);
  std::set<std::vector<std::int32_t>> data;
  std::set<std::vector<std::int32_t>> tensor;
  for (const schedules::Group& group : made.step.groups) {
    if (group.kind == GroupKind::data) data.insert(group.ranks);
    if (group.kind == GroupKind::tensor) tensor.insert(group.ranks);
  }
  EXPECT_EQ(tensor, (std::set<std::vector<std::int32_t>>{
                        {0, 1}, {4, 5}, {8, 9}, {12, 13}, {2, 3}, {6, 7}, {10, 11}, {14, 15}}));
  EXPECT_EQ(data, (std::set<std::vector<std::int32_t>>{
                      {0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
}

TEST(TrainLayout, WhatDoesNotFitIsNamedWithWhatWould) {
  const GptShape shape = shape_for({});
  EXPECT_EQ(refusal_of({.tp = 3}, shape), "--tp is 3, and the number of heads is 4; allowed: 1 2 4");
  EXPECT_EQ(refusal_of({.zero = 4}, shape), "--zero is 4; allowed: 0 1 2 3");
  EXPECT_NE(refusal_of({.schedule = "pipedream"}, shape).find("old weights"), std::string::npos);
  EXPECT_NE(refusal_of({.pp = 2, .schedule = "dualpipe", .microbatches = 4}, shape).find("two copies"),
            std::string::npos);
  EXPECT_NE(refusal_of({.pp = 16}, shape).find("16 stages"), std::string::npos);
  EXPECT_NE(refusal_of({.schedule = "nonsense"}, shape).find("nonsense"), std::string::npos);
  EXPECT_NE(refusal_of({.pp = 4, .schedule = "interleaved", .chunks = 2, .microbatches = 9}, shape), "");
  EXPECT_EQ(refusal_of({.dp = 2, .tp = 2, .pp = 2, .microbatches = 4}, shape), "");
}

// make_train_step() itself checks each step of all ranks (schedules/step/check_step.h) and throws where one is wrong.
TEST(TrainStep, EveryLayoutMakesALegalStep) {
  for (const std::string schedule : {"1f1b", "gpipe", "zb_h1", "zb_v", "interleaved"}) {
    for (const std::int32_t pp : {1, 2, 4}) {
      for (const std::int32_t dp : {1, 2}) {
        for (const std::int32_t zero : {0, 1, 2, 3}) {
          for (const std::int32_t tp : {1, 2}) {
            TrainLayout layout{.dp = dp, .tp = tp, .pp = pp, .zero = zero, .schedule = schedule, .microbatches = 8};
            if (schedule == "interleaved") layout.chunks = 2;
            layout.sequence_parallel = zero % 2 == 1;
            layout.recompute = static_cast<Recompute>(zero % 3);
            const GptShape shape = shape_for(layout);
            if (!refusal_of(layout, shape).empty()) continue;
            const TrainStep made = make_train_step(shape, layout);
            EXPECT_EQ(made.step.num_ranks(), layout.ranks());
            EXPECT_EQ(made.forward.num_ranks(), layout.ranks());
          }
        }
      }
    }
  }
}

// Rajbhandari et al. 2019, section 7: in units of psi (n-1)/n bytes of gradients.
TEST(TrainStep, DataParallelBytesAreThoseOfTheZeroStages) {
  for (const std::int32_t m : {1, 3}) {
    for (const std::int32_t zero : {0, 1, 2, 3}) {
      const TrainLayout layout{.dp = 4, .zero = zero, .microbatches = m};
      const GptShape shape = shape_for(layout);
      const TrainStep made = make_train_step(shape, layout);
      const double psi_bytes = 4.0 * static_cast<double>(shape.config.parameters());
      const double sent = schedules::count_sent(made.step)[0].of(GroupKind::data) / (psi_bytes * 3 / 4);
      // The word embedding is held while a step runs (it is also the head's matrix): gathered once.
      const double embedding = 61.0 * 32 * 4 / psi_bytes;
      const double head_and_norm_once = zero == 3 ? (2 * m - 1) * embedding : 0;
      const double expected[] = {2, 2, m + 1.0, 3.0 * m - head_and_norm_once};
      // The last part's forward and backward follow each other: its unit is gathered once.
      EXPECT_NEAR(sent, expected[zero], zero == 3 ? m * 0.01 : 1e-9) << "ZeRO " << zero << ", m " << m;
    }
  }
}

TEST(BucketPlan, EveryParameterIsInOneBucketWhoseShardsLieAlikeWhereTheyAreShared) {
  for (const std::int32_t zero : {0, 1, 3}) {
    const TrainLayout layout{.dp = 2, .pp = 2, .zero = zero, .microbatches = 2, .bucket_cap_bytes = 20'000};
    const TrainStep made = make_train_step(shape_for(layout), layout);
    for (const StagePlan& plan : made.stages) {
      std::vector<int> times(plan.parameters.size());
      for (const auto& bucket : plan.buckets) {
        for (const std::size_t p : bucket) ++times[p];
        const bool has_embedding = std::find(bucket.begin(), bucket.end(), word_embedding_of(plan)) != bucket.end();
        if (has_embedding) {
          EXPECT_EQ(bucket.size(), 1u);
        }
      }
      EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
    }
  }
}

}  // namespace
}  // namespace lockstep::trainer
