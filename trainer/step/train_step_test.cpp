#include "trainer/step/train_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "schedules/generators/catalogue.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "testing/core/refusal.h"
#include "trainer/step/step_rules.h"
#include "workload/layout.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::trainer {
namespace {

using schedules::GroupKind;

workload::Model small_model(std::int64_t layers = 8) {
  workload::Model model = workload::parse_model("layers=8,hidden=32,heads=4,vocabulary=61,sequence=16,dropout=no");
  model.layers = layers;
  return model;
}

// In f32, two sequences per microbatch.
TrainStep step_of(workload::Layout layout) {
  layout.microbatch_size = 2;
  layout.compute = core::DType::f32;
  layout.overlap_p2p = true;
  layout.early_stop = true;
  return make_train_step(small_model(), layout);
}

std::string refusal_of(const workload::Layout& layout, const workload::Model& model = small_model()) {
  return core::refusal_of([&] { check_layout(model, layout); });
}

// A block of a layer: its kernels and exchanges in a forward and a backward, on all ranks, and nothing else.
TEST(PartStep, HasTheOperationsOfTheBlockOnly) {
  using workload::OperationKind;
  const workload::Layout layout{.dp = 2, .tp = 2, .compute = core::DType::f32};
  const std::vector<OperationKind> mlp{OperationKind::enter_mlp, OperationKind::up, OperationKind::down,
                                       OperationKind::leave_mlp};
  const schedules::Step step = make_part_step(small_model(), layout, {.layers = 1}, mlp);
  ASSERT_EQ(step.num_ranks(), layout.ranks());
  for (const schedules::RankStep& rank : step.of_rank) {
    std::vector<std::pair<OperationKind, workload::Side>> pieces;
    for (const schedules::Task& task : rank.tasks) {
      const workload::PieceName name = workload::piece_named(task.what);
      pieces.emplace_back(name.kind, name.side);
    }
    using workload::Side;
    const std::vector<std::pair<OperationKind, Side>> expected{{OperationKind::up, Side::forward},
                                                               {OperationKind::down, Side::forward},
                                                               {OperationKind::leave_mlp, Side::forward},
                                                               {OperationKind::down, Side::input_gradient},
                                                               {OperationKind::down, Side::weight_gradient},
                                                               {OperationKind::up, Side::input_gradient},
                                                               {OperationKind::enter_mlp, Side::input_gradient},
                                                               {OperationKind::up, Side::weight_gradient}};
    EXPECT_EQ(pieces, expected);
  }
}

// Ranks of Megatron-LM's groups at tp 2, dp 2, pp 4 (parallel_state.py: "tp-cp-ep-dp-pp").
TEST(TrainLayout, RanksAreNumberedTensorFirstThenDataThenPipeline) {
  const workload::Layout layout{.dp = 2, .tp = 2, .pp = 4};
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank)
    EXPECT_EQ(rank_at(layout, coordinates_of(layout, rank)), rank);
  EXPECT_EQ(coordinates_of(layout, 6).dp, 1);
  const TrainStep made = step_of(layout);
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

std::set<std::vector<std::int32_t>> groups_of(const TrainStep& made, GroupKind kind) {
  std::set<std::vector<std::int32_t>> groups;
  for (const schedules::Group& group : made.step.groups) {
    if (group.kind == kind) groups.insert(group.ranks);
  }
  return groups;
}

// As Megatron-LM's partial data-parallel groups and PyTorch's device mesh ("replicate", "shard") have them: a set of
// shards is on neighbours.
TEST(TrainLayout, NeighboursShareShardsAndReplicasAreFarApart) {
  using Groups = std::set<std::vector<std::int32_t>>;
  workload::Layout layout{.dp = 4, .tp = 2, .pp = 2, .zero = 3, .shard_ranks = 2, .microbatches = 2};
  const TrainStep made = step_of(layout);
  EXPECT_EQ(groups_of(made, GroupKind::data),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups_of(made, GroupKind::replicas),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  layout.shard_ranks = 4;  // all
  EXPECT_EQ(groups_of(step_of(layout), GroupKind::replicas), Groups{});
  layout.shard_ranks = 1;  // no sharding
  const TrainStep plain = step_of(layout);
  EXPECT_EQ(groups_of(plain, GroupKind::data), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(groups_of(plain, GroupKind::replicas), Groups{});
}

TEST(TrainLayout, WhatDoesNotFitIsNamedWithWhatWould) {
  EXPECT_EQ(refusal_of({.tp = 3}), "layout: tp is 3, and heads is 4; allowed: 1 2 4");
  EXPECT_EQ(refusal_of({.dp = 4, .zero = 3, .shard_ranks = 3}),
            "layout: shard_ranks is 3, and dp x cp is 4; allowed: 1 2 4");
  EXPECT_EQ(refusal_of({.dp = 4, .shard_ranks = 2}), "layout: shard_ranks is 2; allowed: 0, as zero is 0");
  EXPECT_NE(refusal_of({.pp = 2, .schedule = "pipedream", .microbatches = 2}).find("tied_embeddings=no"),
            std::string::npos);
  EXPECT_EQ(refusal_of({.pp = 4, .schedule = "dualpipe", .microbatches = 4}),
            "layout: schedule dualpipe: microbatches is 4; allowed: at least 8");
  EXPECT_EQ(refusal_of({.pp = 3, .schedule = "chimera", .microbatches = 3}),
            "layout: schedule chimera: ranks is 3; allowed: multiples of 2, such as 2 or 4");
  EXPECT_NE(refusal_of({.pp = 16}).find("16 stages"), std::string::npos);
  EXPECT_NE(refusal_of({.schedule = "nonsense"}).find("nonsense"), std::string::npos);
  EXPECT_NE(refusal_of({.pp = 4, .schedule = "interleaved", .chunks = 2, .microbatches = 9}), "");
  EXPECT_EQ(refusal_of({.dp = 2, .tp = 2, .pp = 2, .microbatches = 4}), "");
}

// make_train_step() itself checks each step of all ranks (schedules/step/step.h) and throws where one is wrong.
TEST(TrainStep, EveryLayoutMakesALegalStep) {
  for (const std::string schedule :
       {"1f1b", "gpipe", "zb_h1", "zb_v", "interleaved", "chimera", "chimera_doubled", "dualpipe"}) {
    for (const std::int32_t pp : {1, 2, 4}) {
      for (const std::int32_t dp : {1, 2, 4}) {
        for (const std::int32_t zero : {0, 1, 2, 3}) {
          for (const std::int32_t tp : {1, 2}) {
            workload::Layout layout{
                .dp = dp, .tp = tp, .pp = pp, .zero = zero, .schedule = schedule, .microbatches = 8};
            if (dp == 4) layout.shard_ranks = 2;  // with sharding
            if (schedule == "interleaved") layout.chunks = 2;
            layout.sequence_parallel = zero % 2 == 1;
            layout.recompute = static_cast<workload::Recompute>(zero % 3);
            if (!refusal_of(layout).empty()) continue;
            const TrainStep made = step_of(layout);
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
      const workload::Layout layout{.dp = 4, .zero = zero, .microbatches = m};
      const TrainStep made = step_of(layout);
      const double psi_bytes = 4.0 * static_cast<double>(parameters_of(small_model()));
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

// Hybrid sharding (arXiv:2304.11277, section 3.2.2), r replicas of s shards: what full sharding over s ranks sends in a
// set, and 2 psi/s (r-1)/r over replicas for each reduction.
TEST(TrainStep, HybridBytesAreThoseOfASetAndOfReplicasOfAShard) {
  for (const std::int32_t m : {1, 3}) {
    for (const std::int32_t zero : {1, 2, 3}) {
      for (const std::int32_t s : {2, 4}) {
        const workload::Layout layout{.dp = 8, .zero = zero, .shard_ranks = s, .microbatches = m};
        const workload::Layout one_set{.dp = s, .zero = zero, .microbatches = m};
        const schedules::SentBytes sent = schedules::count_sent(step_of(layout).step)[0];
        const schedules::SentBytes in_set = schedules::count_sent(step_of(one_set).step)[0];
        EXPECT_DOUBLE_EQ(sent.of(GroupKind::data), in_set.of(GroupKind::data));
        const double psi_bytes = 4.0 * static_cast<double>(parameters_of(small_model()));
        const std::int32_t r = 8 / s;
        const double over_replicas = 2 * psi_bytes / s * (r - 1) / r * (zero >= 2 ? m : 1);
        EXPECT_NEAR(sent.of(GroupKind::replicas) / over_replicas, 1, 1e-3) << "shards of buckets are rounded up";
      }
    }
  }
}

// A bucket's sum over replicas neither holds up the next bucket's reduction, nor is overtaken by its own next one.
TEST(TrainStep, ReplicasAreSummedInALaneOfTheirOwn) {
  const workload::Layout layout{.dp = 4, .zero = 3, .shard_ranks = 2, .microbatches = 2};
  const TrainStep made = step_of(layout);
  const schedules::RankStep& rank = made.step.of_rank.front();
  std::map<std::int32_t, std::uint32_t> scattered;  // by bucket: its last task
  std::map<std::int32_t, std::uint32_t> summed;
  for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
    const schedules::Task& task = rank.tasks[i];
    const auto after = rank.after_of(task);
    const auto waits_for = [&](std::uint32_t other) {
      return std::find(after.begin(), after.end(), other) != after.end();
    };
    if (task.op == schedules::Op::reduce_grad && task.comm == schedules::Comm::reduce_scatter) {
      EXPECT_EQ(task.lane, schedules::Lane::reduce);
      for (const auto& [bucket, sum] : summed) EXPECT_EQ(waits_for(sum), bucket == task.part);
      scattered[task.part] = i;
    } else if (task.op == schedules::Op::reduce_grad) {
      EXPECT_EQ(task.lane, schedules::Lane::replicas);
      EXPECT_TRUE(waits_for(scattered.at(task.part)));
      summed[task.part] = i;
    } else if (task.op == schedules::Op::optimizer) {
      EXPECT_TRUE(waits_for(summed.rbegin()->second));
    }
  }
  EXPECT_GT(summed.size(), 2U);
}

TEST(TwoPipes, ARanksCopiesAreOnTheOppositePlace) {
  using Groups = std::set<std::vector<std::int32_t>>;
  workload::Layout layout{.dp = 2, .pp = 4, .schedule = "chimera", .microbatches = 4};
  const TrainStep made = step_of(layout);
  EXPECT_EQ(groups_of(made, GroupKind::data), (Groups{{0, 1, 6, 7}, {2, 3, 4, 5}}));
  EXPECT_EQ(groups_of(made, GroupKind::embedding), (Groups{{0}, {1}, {6}, {7}})) << "each end has both";
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const workload::Coordinates at = coordinates_of(layout, rank);
    const std::vector<std::int32_t> stages = stages_of(made, at.pp);
    ASSERT_EQ(stages, (std::vector<std::int32_t>{at.pp, 4 + 3 - at.pp}));
    EXPECT_EQ(made.stages[static_cast<std::size_t>(stages[1])].place.first_layer,
              made.stages[static_cast<std::size_t>(3 - at.pp)].place.first_layer);
    EXPECT_EQ(rank_at(layout, data_rank_at(layout, at, data_index_of(layout, at))), rank);
  }
  layout.zero = 3;
  layout.shard_ranks = 2;
  const TrainStep hybrid = step_of(layout);
  EXPECT_EQ(groups_of(hybrid, GroupKind::data), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_of(hybrid, GroupKind::replicas), (Groups{{0, 6}, {1, 7}, {2, 4}, {3, 5}}));
}

// Two stages of a rank over 2 dp ranks: as much as twice the data-parallel ranks send for the same parameters.
TEST(TwoPipes, SendTheGradientsOfBothStagesOverTwiceTheRanks) {
  for (const std::int32_t dp : {1, 2}) {
    for (const std::int32_t zero : {0, 1}) {
      const workload::Layout layout{.dp = dp, .pp = 2, .zero = zero, .schedule = "dualpipe", .microbatches = 4};
      const TrainStep made = step_of(layout);
      std::int64_t elems = 0;
      for (const std::int32_t s : stages_of(made, 0)) {
        for (const auto& parameter : made.stages[static_cast<std::size_t>(s)].parameters) elems += parameter.elems();
      }
      const double expected = 2 * 4.0 * static_cast<double>(elems) * (2 * dp - 1) / (2 * dp);
      EXPECT_NEAR(schedules::count_sent(made.step)[0].of(GroupKind::data), expected, 1e-6 * expected);
    }
  }
}

TEST(TwoPipes, OfAUsersOwnMustBeMirrorImages) {
  const auto refused = [](const schedules::Schedule& own) -> std::string {
    workload::Layout layout{.pp = own.num_ranks(), .microbatches = own.num_microbatches};
    layout.own_schedule = std::make_shared<const schedules::Schedule>(own);
    if (std::string refusal = refusal_of(layout); !refusal.empty()) return refusal;
    return core::refusal_of([&] { step_of(layout); });
  };
  schedules::Schedule own = schedules::make_schedule("chimera", {2, 2, 1});
  EXPECT_EQ(refused(own), "");
  schedules::Schedule same_way = own;
  same_way.rank_of_stage = {0, 1, 0, 1};
  EXPECT_NE(refused(same_way).find("from the last to the first"), std::string::npos);
  std::swap(own.of_rank[1][2], own.of_rank[1][3]);  // a legal schedule, whose first gradients are of unlike stages
  const std::string refusal = refused(own);
  EXPECT_NE(refusal.find("chimera cannot be trained"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("of place 0 in its pipe, part 0 meets"), std::string::npos) << refusal;
}

TEST(BucketPlan, EveryParameterIsInOneBucketWhoseShardsLieAlikeWhereTheyAreShared) {
  for (const std::int32_t zero : {0, 1, 3}) {
    const workload::Layout layout{.dp = 2, .pp = 2, .zero = zero, .microbatches = 2, .bucket_cap_bytes = 20'000};
    const TrainStep made = step_of(layout);
    for (const workload::StagePlan& plan : made.stages) {
      std::vector<int> times(plan.parameters.size());
      for (const auto& bucket : plan.buckets) {
        for (const std::size_t p : bucket) ++times[p];
        const bool has_embedding =
            std::find(bucket.begin(), bucket.end(), workload::word_embedding_of(plan.parameters)) != bucket.end();
        if (has_embedding) {
          EXPECT_EQ(bucket.size(), 1u);
        }
      }
      EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
    }
  }
}

const workload::Layout kLayout{.dp = 4, .microbatch_size = 2};

workload::Model model_that_needs() {
  return workload::parse_model("layers=2,hidden=32,heads=4,vocabulary=61,sequence=16,dropout=no");
}

std::string memory_refusal_of(const std::vector<GpuRoom>& gpus) {
  const TrainStep made = make_train_step(model_that_needs(), kLayout);
  return core::refusal_of([&] { check_gpu_memory(made, model_that_needs(), kLayout, gpus); });
}

std::int64_t need_of_a_rank() {
  return parallel::total_of(
      memory_need(make_train_step(model_that_needs(), kLayout), model_that_needs(), kLayout, 0).at_peak());
}

TEST(GpuMemory, RanksThatShareAGpuShareItsMemory) {
  const std::int64_t need = need_of_a_rank();
  EXPECT_EQ(memory_refusal_of({{"cuda:0", {0, 1, 2}, 3 * need}, {"cuda:1", {3}, need}}), "");
  EXPECT_NE(memory_refusal_of({{"cuda:0", {0, 1, 2}, 3 * need - 1}, {"cuda:1", {3}, need}}), "");
}

TEST(GpuMemory, TheRefusalNamesTheGpuItsRanksAndWhatHelps) {
  const std::int64_t need = need_of_a_rank();
  const std::string refusal = memory_refusal_of({{"cuda:0", {0, 2}, 2 * need}, {"cuda:1", {1, 3}, need}});
  EXPECT_NE(refusal.find(model_that_needs().name + " on 2 ranks of cuda:1 needs about "), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("what helps: "), std::string::npos) << refusal;
  EXPECT_EQ(refusal.find('\n'), std::string::npos);
}

constexpr LearningRate kRate{.peak = 8e-4, .floor = 8e-5, .warmup = 10, .steps = 110};

TEST(LearningRate, WarmsUpLinearly) {
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 1), 8e-5);
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 5), 4e-4);
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 10), 8e-4);
}

TEST(LearningRate, ThenFollowsACosineToTheFloor) {
  EXPECT_NEAR(learning_rate(kRate, 60), (8e-4 + 8e-5) / 2, 1e-12);                         // half way
  EXPECT_NEAR(learning_rate(kRate, 35), 8e-5 + 7.2e-4 * (1 + std::sqrt(0.5)) / 2, 1e-12);  // a quarter: 45 degrees
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 110), 8e-5);
  EXPECT_DOUBLE_EQ(learning_rate(kRate, 100'000), 8e-5);
  for (std::int64_t step = 11; step <= 110; ++step) {
    EXPECT_LT(learning_rate(kRate, step), learning_rate(kRate, step - 1));
  }
}

TEST(LearningRate, WithoutWarmUpItBeginsNearThePeak) {
  const LearningRate rate{.peak = 1, .floor = 0, .warmup = 0, .steps = 1000};
  EXPECT_NEAR(learning_rate(rate, 1), 1, 1e-5);
  EXPECT_EQ(learning_rate(rate, 1000), 0);
}

TEST(LearningRate, AWarmUpAsLongAsTheRunHasNoCosine) {
  const LearningRate rate{.peak = 1, .floor = 0.5, .warmup = 4, .steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(rate, 2), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(rate, 4), 1);
  EXPECT_DOUBLE_EQ(learning_rate(rate, 5), 0.5);
}

constexpr LossScaleOptions kOptions{.first = 1024, .least = 256, .most = 4096, .good_steps_to_double = 3};

TEST(LossScale, HalvesOnOverflowDownToTheLeast) {
  LossScale scale{1024, 2};
  scale = next_loss_scale(kOptions, scale, false);
  EXPECT_EQ(scale, (LossScale{512, 0}));
  scale = next_loss_scale(kOptions, scale, false);
  scale = next_loss_scale(kOptions, scale, false);
  EXPECT_EQ(scale, (LossScale{256, 0}));
}

TEST(LossScale, DoublesAfterSoManyGoodStepsInARowUpToTheMost) {
  LossScale scale = first_loss_scale(kOptions);
  for (int step = 0; step < 2; ++step) scale = next_loss_scale(kOptions, scale, true);
  EXPECT_EQ(scale, (LossScale{1024, 2}));
  scale = next_loss_scale(kOptions, scale, true);
  EXPECT_EQ(scale, (LossScale{2048, 0}));
  for (int step = 0; step < 30; ++step) scale = next_loss_scale(kOptions, scale, true);
  EXPECT_EQ(scale.scale, 4096);
}

TEST(LossScale, AnOverflowStartsTheCountAgain) {
  LossScale scale = first_loss_scale(kOptions);
  for (const bool finite : {true, true, false, true, true}) scale = next_loss_scale(kOptions, scale, finite);
  EXPECT_EQ(scale, (LossScale{512, 2}));
  EXPECT_EQ(next_loss_scale(kOptions, scale, true), (LossScale{1024, 0}));
}

// A run that is cut and goes on from the saved value sees the same scales.
TEST(LossScale, TheValueIsAllOfTheState) {
  LossScale whole = first_loss_scale(kOptions);
  LossScale cut = whole;
  for (int step = 0; step < 50; ++step) {
    whole = next_loss_scale(kOptions, whole, step % 7 != 0);
    const LossScale saved = cut;
    cut = next_loss_scale(kOptions, saved, step % 7 != 0);
    EXPECT_EQ(whole, cut);
  }
}

}  // namespace
}  // namespace lockstep::trainer
