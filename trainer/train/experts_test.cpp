// Training with products in 8-bit floats, and training of mixtures of experts.
#include <algorithm>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "testing/trainer/run.h"

namespace lockstep::trainer {
namespace {

TrainOptions options_for(const std::string& layout, std::int64_t steps = 30) {
  TrainOptions options = options_of(workload::parse_layout("dtype=f32,batch=16,microbatch=8," + layout), steps);
  return options;
}

// The curve equals f32's within a few percent, and is not the same.
TEST(Fp8Training, LearnsNearlyAsF32) {
  const TrainResult wide = run(options_for("fp8=none"));
  for (const std::string layout : {"fp8=tensor", "fp8=row", "fp8=block", "fp8=tensor,fp8_delayed=yes"}) {
    const TrainResult narrow = run(options_for(layout));
    EXPECT_LT(narrow.steps.back().loss, 0.8 * narrow.steps.front().loss) << layout;
    EXPECT_NEAR(narrow.steps.back().loss, wide.steps.back().loss, 0.03 * wide.steps.back().loss) << layout;
    EXPECT_NE(narrow.steps.back().loss, wide.steps.back().loss) << layout;
  }
}

// Scales are powers of two, so that bf16 holds what codes decode to.
TEST(Fp8Training, OfBf16IsNearlyAsOfF32) {
  TrainOptions options = options_for("fp8=tensor");
  const TrainResult wide = run(options);
  options.layout.compute = core::DType::bf16;
  EXPECT_EQ(difference(wide, run(options), 2e-2), "");
}

// Encoded values do not depend on which rank has a stage, nor on what is sharded.
TEST(Fp8Training, PipelinesAndShardsChangeNothing) {
  for (const std::string scaling : {"fp8=row", "fp8=tensor,fp8_delayed=yes"}) {
    const TrainResult single = run(options_for(scaling, 5));
    EXPECT_EQ(difference(single, run(options_for("pp=2," + scaling, 5)), 1e-5), "") << scaling;
    EXPECT_EQ(difference(single, run(options_for("recompute=full," + scaling, 5)), 0), "") << scaling;
  }
  const TrainResult replicas = run(options_for("dp=2,fp8=row", 5));
  EXPECT_EQ(difference(replicas, run(options_for("dp=2,zero=3,fp8=row", 5)), 1e-5), "");
}

// A validation in between raises nothing that the next step scales by.
TEST(Fp8Training, ValidationLeavesNoTrace) {
  TrainOptions options = options_for("fp8=tensor,fp8_delayed=yes", 6);
  const TrainResult without = run(options);
  options.validate_every = 1;
  EXPECT_EQ(difference(without, run(options), 0), "");
}

TEST(Fp8Training, HistoryIsInCheckpoints) {
  constexpr std::int64_t kTaken = 8;
  for (const std::string layout : {"", "dp=2,zero=1,", "pp=2,tp=2,"}) {
    const TrainOptions delayed = options_for(layout + "fp8=tensor,fp8_delayed=yes,fp8_history=3", kTaken);
    const TrainOptions longer = options_for(layout + "fp8=tensor,fp8_delayed=yes,fp8_history=4", kTaken);
    const TrainResult at_once = run(delayed);
    EXPECT_EQ(difference(at_once, resumed(delayed, delayed, 3), 0), "") << layout;
    EXPECT_NE(difference(at_once, resumed(delayed, longer, 3), 0, Norms::ignored), "")
        << layout << ": of another length, which starts over";
  }
}

TEST(Fp8Training, RefusalsSayWhatIsAllowed) {
  EXPECT_NE(refusal_of(options_for("fp8=row,fp8_delayed=yes")).find("fp8_delayed is yes; allowed: no, or fp8=tensor"),
            std::string::npos);
}

// Mixtures of experts: one expert is the dense model, and however experts are spread over ranks the training is the
// same.

TrainOptions options_with(const std::string& fields, const workload::Layout& layout, std::int64_t steps = kSteps) {
  TrainOptions options = options_of(layout, steps);
  options.model = workload::parse_model("layers=2,hidden=32,heads=4,vocabulary=256,sequence=16,dropout=no" +
                                        (fields.empty() ? "" : "," + fields));
  return options;
}

constexpr const char* kEight = "experts=8,experts_per_token=2,balance_loss=0.01,z_loss=0.001";
constexpr const char* kShared = ",shared_hidden=48";

// Without clipping: the router's gradient, which is 0, stands between the others in the sum of their squares, whose
// terms are then added in another order.
TEST(Experts, OneIsTheDenseModelBitForBit) {
  const auto train = [](const std::string& fields) {
    TrainOptions options = options_with(fields, {.dp = 2});
    options.most_norm = 0;
    return run(options);
  };
  const TrainResult dense = train("");
  for (const char* one : {"experts=1,experts_per_token=1", "experts=1,experts_per_token=1,capacity_factor=1"}) {
    EXPECT_EQ(difference(dense, train(one), 0, Norms::ignored), "") << one;
  }
}

TEST(Experts, SpreadOverRanksLossesAreEqual) {
  constexpr std::int64_t kTwenty = 20;
  for (const std::string more :
       {"", ",capacity_factor=1.25", ",biases=no,gated=yes,norm=rms", ",shared_hidden=48,biases=no,gated=yes"}) {
    const TrainResult single = run(options_with(kEight + more, {.dp = 4}, kTwenty));
    for (const std::int32_t ranks : {2, 4}) {
      const TrainResult spread = run(options_with(kEight + more, {.dp = 4, .ep = ranks}, kTwenty));
      EXPECT_EQ(difference(single, spread, 1e-5), "") << "ep " << ranks << more;
    }
  }
}

TEST(Experts, TheRestOfALayoutChangesNothing) {
  const TrainResult single = run(options_with(kEight, {.dp = 2, .microbatches = 2}));
  for (const workload::Layout& layout :
       {workload::Layout{.dp = 2, .zero = 3, .microbatches = 2, .bucket_cap_bytes = 20'000},
        {.dp = 2, .pp = 2, .ep = 2, .schedule = "zb_h1", .microbatches = 2},
        {.dp = 2, .ep = 2, .zero = 1, .microbatches = 2},
        {.dp = 2, .ep = 2, .zero = 3, .microbatches = 2, .bucket_cap_bytes = 20'000},
        {.dp = 2, .ep = 2, .microbatches = 2, .recompute = workload::Recompute::full}}) {
    EXPECT_EQ(difference(single, run(options_with(kEight, layout)), 1e-5), "") << text_of(layout);
  }
}

TEST(Experts, RoutersTrain) {
  for (const char* fields : {kEight, "experts=8,router=sigmoid", "experts=8,experts_per_token=1,capacity_factor=1"}) {
    const TrainResult trained = run(options_with(fields, {.dp = 2, .ep = 2}, 20));
    EXPECT_LT(trained.steps.back().loss, trained.steps.front().loss - 0.5) << fields;
    const auto& loads = trained.steps.back().expert_loads;
    ASSERT_EQ(loads.size(), 2u);
    const std::int64_t copies =
        kBatch * 16 * (std::string(fields).find("experts_per_token=1") == std::string::npos ? 2 : 1);
    for (const auto& layer : loads) EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), std::int64_t{0}), copies);
  }
}

// Experts are sharded over the ranks that have the same ones, all else over all data ranks.
TEST(Experts, ZeroOverExpertRanksChangesNothing) {
  const TrainResult single = run(options_with(kEight, {.dp = 4}));
  for (const std::int32_t stage : {1, 2, 3}) {
    for (const std::int32_t ranks : {2, 4}) {
      const workload::Layout layout{.dp = 4, .ep = ranks, .zero = stage};
      EXPECT_EQ(difference(single, run(options_with(kEight, layout)), 1e-5), "") << text_of(layout);
    }
    for (const std::int32_t ranks : {1, 2, 4}) {
      const workload::Layout layout{.dp = 4, .ep = ranks, .zero = stage, .microbatches = 2};
      EXPECT_EQ(memory_difference(options_with(std::string(kEight) + ",capacity_factor=1", layout)), "")
          << text_of(layout);
    }
  }
}

// The busiest expert's share of the mean, in the mean of the last ten steps and of the layers.
double imbalance(const TrainResult& trained) {
  double sum = 0;
  std::int64_t terms = 0;
  for (std::size_t s = trained.steps.size() - 10; s < trained.steps.size(); ++s) {
    for (const auto& layer : trained.steps[s].expert_loads) {
      const auto all = static_cast<double>(std::accumulate(layer.begin(), layer.end(), std::int64_t{0}));
      sum +=
          static_cast<double>(*std::max_element(layer.begin(), layer.end())) * static_cast<double>(layer.size()) / all;
      ++terms;
    }
  }
  return sum / static_cast<double>(terms);
}

TEST(Experts, ABiasBalancesWithoutALoss) {
  constexpr std::int64_t kSteps = 60;
  const std::string sigmoid = "experts=8,router=sigmoid";
  const TrainResult left = run(options_with(sigmoid, {.dp = 2, .ep = 2}, kSteps));
  const TrainResult moved = run(options_with(sigmoid + ",bias_rate=0.01", {.dp = 2, .ep = 2}, kSteps));
  EXPECT_LT(imbalance(moved), imbalance(left) - 0.2);
  EXPECT_NEAR(moved.steps.back().loss, left.steps.back().loss, 0.1 * left.steps.back().loss);
  EXPECT_EQ(memory_difference(options_with(std::string(kEight) + ",capacity_factor=1,bias_rate=0.01", {.dp = 2})), "");
}

// Without the biases the choices, and so the losses, of the steps after a checkpoint differ.
TEST(Experts, BiasesAreInTheCheckpointInAnyLayout) {
  const std::string fields = "experts=8,router=sigmoid,bias_rate=0.05";
  const TrainResult whole = run(options_with(fields, {.dp = 4}, 6));
  const TrainResult in_two = resumed(options_with(fields, {.dp = 4, .ep = 2}, 6),
                                     options_with(fields, {.dp = 2, .pp = 2, .ep = 2, .microbatches = 2}, 6), 3);
  EXPECT_EQ(difference(whole, in_two, 1e-5), "");
  for (std::size_t s = 0; s < in_two.steps.size(); ++s) {
    EXPECT_EQ(in_two.steps[s].expert_loads, whole.steps[s].expert_loads);
  }
}

// Dispatch overlaps with the shared experts, whose parameters all data ranks have.
TEST(Experts, SharedOnesGoWithAnyLayout) {
  const std::string fields = std::string(kEight) + kShared;
  const TrainResult single = run(options_with(fields, {.dp = 2, .microbatches = 2}));
  for (const workload::Layout& layout :
       {workload::Layout{.dp = 2, .pp = 2, .ep = 2, .schedule = "zb_h1", .microbatches = 2},
        {.dp = 2, .ep = 2, .zero = 3, .microbatches = 2, .bucket_cap_bytes = 20'000},
        {.dp = 2, .ep = 2, .microbatches = 2, .overlap_tp = false},
        {.dp = 2, .ep = 2, .microbatches = 2, .recompute = workload::Recompute::full}}) {
    EXPECT_EQ(difference(single, run(options_with(fields, layout)), 1e-5), "") << text_of(layout);
    EXPECT_EQ(memory_difference(options_with(fields + ",capacity_factor=1", layout)), "") << text_of(layout);
    EXPECT_EQ(memory_difference(options_with(fields + ",capacity_factor=1,biases=no,gated=yes", layout)), "")
        << text_of(layout);
  }
}

// With a capacity, or all experts on each rank, sizes do not depend on the router.
TEST(Experts, MemoryIsAsPredicted) {
  EXPECT_EQ(memory_difference(options_with(kEight, {.dp = 2})), "");
  EXPECT_EQ(memory_difference(options_with(std::string(kEight) + ",capacity_factor=1", {.dp = 2, .ep = 2})), "");
  EXPECT_EQ(memory_difference(options_with(std::string(kEight) + ",biases=no,gated=yes,norm=rms", {.dp = 2})), "");
}

// Four exchanges a layer and microbatch of k T h (EP - 1) / EP elements, counted on all ranks together.
TEST(Experts, BytesAreCopiesOfTokensThatGoToOthers) {
  for (const std::int32_t ranks : {2, 4}) {
    for (const std::string more : {",capacity_factor=1", ""}) {
      const TrainOptions options = checked(options_with(kEight + more, {.dp = 4, .ep = ranks}, 1));
      std::mutex mutex;
      double sent = 0;
      run_trainers(options, [&](const TrainStep&, RankTrainer& trainer) {
        trainer.train_step(1);
        const std::lock_guard lock(mutex);
        sent += trainer.model().collectives().sent_bytes(schedules::Lane::tensor);
      });
      const double tokens = static_cast<double>(kBatch * options.model.sequence);
      const double a_direction = 2 * tokens * 32 * 4 * (ranks - 1) / ranks;
      const double all = 4.0 * 2 * a_direction;  // exchanges, layers
      if (!more.empty()) {
        EXPECT_DOUBLE_EQ(sent, all) << "ep " << ranks;
      } else {  // by the router, and counts: a random router is nearly even
        const double counts = 2.0 * 4 * 4 * 8 * (ranks - 1);
        EXPECT_NEAR(sent - counts, all, 0.25 * all) << "ep " << ranks;
      }
    }
  }
}

// A checkpoint names experts by their numbers among all: it is read in any layout.
TEST(Experts, TrainingGoesOnInAnotherLayout) {
  const TrainResult in_two =
      resumed(options_with(kEight, {.dp = 4, .ep = 2, .zero = 2}, 4), options_with(kEight, {.dp = 4, .ep = 4}, 4), 2);
  EXPECT_EQ(difference(run(options_with(kEight, {.dp = 4}, 4)), in_two, 1e-5), "");
}

std::string refusal_with(const std::string& fields, const workload::Layout& layout) {
  return refusal_of(options_with(fields, layout));
}

TEST(Experts, WhatIsNotThereIsRefused) {
  EXPECT_NE(refusal_with(kEight, {.dp = 3, .ep = 3}).find("ep is 3, and experts is 8"), std::string::npos);
  EXPECT_NE(refusal_with(kEight, {.tp = 2, .sequence_parallel = true}).find("allowed: tp=1"), std::string::npos);
  EXPECT_NE(refusal_with(std::string(kEight) + ",router=sigmoid", {}).find("balance_loss=0"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::trainer
