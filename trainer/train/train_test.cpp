#include "trainer/train/train.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/gemm/gemm_choice.h"
#include "schedules/schedule.h"
#include "schedules/step/breakdown.h"
#include "testing/trainer/checkpoint_ranks.h"
#include "testing/trainer/run.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/train/rank_trainer.h"
#include "workload/memory.h"

namespace lockstep::trainer {
namespace {

TEST(Sampling, DrawsByTheSoftmax) {
  const std::array<float, 3> logits{std::log(1.0F), std::log(2.0F), std::log(5.0F)};
  std::array<int, 3> drawn = {};
  for (int i = 0; i < 800; ++i) ++drawn[static_cast<std::size_t>(drawn_word(logits, 1, (i + 0.5) / 800))];
  EXPECT_NEAR(drawn[0], 100, 1);
  EXPECT_NEAR(drawn[1], 200, 1);
  EXPECT_NEAR(drawn[2], 500, 1);
}

TEST(Sampling, WithoutTemperatureTheLargestAndWithMuchAlmostEven) {
  const std::array<float, 4> logits{0, 3, 3, 1};
  EXPECT_EQ(drawn_word(logits, 0, 0.99), 1);
  std::array<int, 4> drawn = {};
  for (int i = 0; i < 400; ++i) ++drawn[static_cast<std::size_t>(drawn_word(logits, 1e6, (i + 0.5) / 400))];
  for (const int times : drawn) EXPECT_NEAR(times, 100, 1);
}

// Ranks numbered in another order do the same work: another rank has each place, and every loss has the same bits.

using workload::Axis;

TEST(Order, OfRanksChangesNoLoss) {
  workload::Layout layout = all_of_them();
  const TrainResult usual = run(layout);
  for (const workload::AxisOrder order :
       {workload::AxisOrder{Axis::pp, Axis::dp, Axis::cp, Axis::tp}, {Axis::dp, Axis::tp, Axis::pp, Axis::cp}}) {
    layout.order = order;
    EXPECT_EQ(difference(usual, run(layout), 0), "") << text_of(layout);
    EXPECT_EQ(memory_difference(options_of(layout)), "") << text_of(layout);
  }
}

// The same losses whatever the layout: a run on one rank is what all others are compared with.

class Layouts : public ::testing::Test {
 protected:
  static const TrainResult& single() {
    static const TrainResult result = run(workload::Layout{});
    return result;
  }
  static void compare(const workload::Layout& layout) {
    EXPECT_EQ(difference(single(), run(layout), 1e-5), "") << text_of(layout);
  }
};

TEST_F(Layouts, OneRankLearns) {
  EXPECT_LT(single().steps.back().loss, single().steps.front().loss - 0.3);
  EXPECT_LT(single().validation_loss, single().steps.front().loss);
}

TEST_F(Layouts, AccumulationIsTheSameBatch) {
  compare({.microbatches = 4});
  compare({.microbatches = 4, .recompute = workload::Recompute::full});
  compare({.microbatches = 2, .recompute = workload::Recompute::selective});
}

TEST_F(Layouts, DataParallelRanksInAllZeroStages) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    compare({.dp = 2, .zero = zero, .bucket_cap_bytes = 20'000});
    compare({.dp = 4, .zero = zero, .microbatches = 2});
  }
}

TEST_F(Layouts, HybridShardingInAllZeroStages) {
  for (const std::int32_t zero : {1, 2, 3}) {
    compare({.dp = 4, .zero = zero, .shard_ranks = 2, .bucket_cap_bytes = 20'000});
    compare({.dp = 8, .zero = zero, .shard_ranks = zero == 2 ? 2 : 4, .microbatches = 2});
    compare({.dp = 4, .tp = 2, .pp = 2, .zero = zero, .shard_ranks = 2, .microbatches = 2, .sequence_parallel = true});
  }
}

TEST_F(Layouts, TensorParallelRanks) {
  for (const bool sequence : {false, true}) {
    compare({.tp = 2, .sequence_parallel = sequence});
    compare({.tp = 4, .microbatches = 2, .sequence_parallel = sequence, .recompute = workload::Recompute::full});
  }
}

TEST_F(Layouts, PipelinesOfAllSchedules) {
  for (const std::string schedule :
       {"naive", "gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dualpipe_v"}) {
    compare({.pp = 2, .schedule = schedule, .microbatches = 4});
  }
  for (const std::string schedule : {"interleaved", "breadth_first", "interleaved_zb"}) {
    compare({.pp = 2, .schedule = schedule, .chunks = 2, .microbatches = 4});
  }
  compare({.pp = 4, .schedule = "zb_h1", .microbatches = 8});
}

TEST_F(Layouts, SlicesOfTokens) {
  for (const workload::Layout& layout : layouts_of_slices()) compare(layout);
}

TEST_F(Layouts, ActivationsOnOtherRanks) {
  compare({.pp = 4, .schedule = "bpipe", .microbatches = 8});
  compare({.pp = 4, .schedule = "bpipe", .microbatches = 4, .recompute = workload::Recompute::full});
  compare({.dp = 2, .tp = 2, .pp = 4, .zero = 2, .schedule = "bpipe", .microbatches = 8, .sequence_parallel = true});
}

// The same of Llama's blocks: each kind of layout, and all together.
TEST(LlamaLayouts, TrainAsOneRankDoes) {
  const auto run_llama = [](const workload::Layout& layout, core::DType compute = core::DType::f32) {
    TrainOptions options = options_of(layout);
    options.model = tiny_llama();
    options.layout.compute = compute;
    return run(options);
  };
  const TrainResult single = run_llama({});
  EXPECT_LT(single.steps.back().loss, single.steps.front().loss - 0.3);
  const std::vector<workload::Layout> layouts{
      {.microbatches = 2, .recompute = workload::Recompute::selective},
      {.microbatches = 2, .recompute = workload::Recompute::full},
      {.dp = 2, .zero = 1, .bucket_cap_bytes = 20'000},
      {.dp = 2, .zero = 3, .microbatches = 2},
      {.tp = 2},
      {.tp = 4, .sequence_parallel = true, .recompute = workload::Recompute::selective},
      {.pp = 2, .schedule = "1f1b", .microbatches = 4},
      {.pp = 2, .schedule = "zb_h1", .microbatches = 4, .recompute = workload::Recompute::full},
      {.pp = 2, .schedule = "interleaved", .chunks = 2, .microbatches = 4},
      {.pp = 2, .schedule = "zb_v", .microbatches = 4},
      {.pp = 4, .schedule = "bpipe", .microbatches = 8},
      all_of_them()};
  for (const auto* const all : {&layouts, &layouts_of_slices()}) {
    for (const workload::Layout& layout : *all) {
      EXPECT_EQ(difference(single, run_llama(layout), 1e-5), "") << text_of(layout);
    }
  }
  const TrainResult narrow = run_llama(all_of_them(), core::DType::bf16);
  EXPECT_NEAR(narrow.steps.back().loss, single.steps.back().loss, 0.02);
}

// Where no sum is taken in another order. (Stages on several ranks sum the gradient of the word embedding, which is
// also the head's matrix, in two parts.)
TEST(SameBits, OfSchedulesOnOneRankRecomputationAndZeroStages) {
  const auto expect_same = [](const workload::Layout& a, const workload::Layout& b, float most_norm = 1) {
    TrainOptions options = options_of(a);
    TrainOptions other = options_of(b);
    options.most_norm = other.most_norm = most_norm;
    EXPECT_EQ(difference(run(options), run(other), 0, Norms::ignored), "") << text_of(b);
  };
  expect_same({.microbatches = 4}, {.schedule = "gpipe", .microbatches = 4});
  expect_same({.microbatches = 4},
              {.schedule = "zb_h1", .microbatches = 4, .recompute = workload::Recompute::selective});
  expect_same({.microbatches = 4}, {.microbatches = 4, .recompute = workload::Recompute::full});
  for (const std::int32_t zero : {1, 2, 3}) {
    // Shards sum the squares of the norm in other pieces: nothing is clipped.
    expect_same({.dp = 2, .bucket_cap_bytes = 20'000}, {.dp = 2, .zero = zero, .bucket_cap_bytes = 20'000}, 0);
  }
  expect_same({.pp = 2, .microbatches = 4}, {.pp = 2, .schedule = "zb_h1", .microbatches = 4});
  expect_same({.tp = 2, .microbatches = 2}, {.tp = 2, .microbatches = 2, .recompute = workload::Recompute::full});
}

// A sum among neighbours, then over sets of neighbours: as an all-reduce in two levels takes it.
TEST(SameBits, OfHybridShardingAndAllReducesInTwoLevels) {
  TrainOptions replicas = options_of({.dp = 4, .bucket_cap_bytes = 20'000});
  replicas.algorithm = "hierarchical:group=2";
  replicas.most_norm = 0;  // shards sum the squares of the norm in other pieces: nothing is clipped
  const TrainResult expected = run(replicas);
  for (const std::int32_t zero : {1, 2, 3}) {
    TrainOptions hybrid = options_of({.dp = 4, .zero = zero, .shard_ranks = 2, .bucket_cap_bytes = 20'000});
    hybrid.most_norm = 0;
    EXPECT_EQ(difference(expected, run(hybrid), 0, Norms::ignored), "") << text_of(hybrid.layout);
  }
}

TEST(SameBits, OfSetsOfAllRanksAndOfOne) {
  for (const std::int32_t zero : {1, 2, 3}) {
    workload::Layout layout{.dp = 4, .zero = zero, .shard_ranks = 4, .microbatches = 2};
    EXPECT_EQ(difference(run({.dp = 4, .zero = zero, .microbatches = 2}), run(layout), 0, Norms::ignored), "");
    layout.shard_ranks = 1;
    EXPECT_EQ(difference(run({.dp = 4, .microbatches = 2}), run(layout), 0, Norms::ignored), "");
  }
}

// Weights are gathered from another copy of the same: hpZ, with weights as they are and as codes.
TEST(SameBits, OfASecondaryCopyOfTheWeights) {
  const std::vector<workload::Layout> layouts{
      {.dp = 4, .zero = 3, .microbatches = 2},
      {.dp = 4, .zero = 3, .weight_compression = workload::CompressionWay::int8},
      {.dp = 4, .zero = 3, .recompute = workload::Recompute::full, .prefetch = false},
      {.dp = 4, .tp = 2, .pp = 2, .zero = 3, .microbatches = 2}};
  for (const workload::Layout& plain : layouts) {
    workload::Layout secondary = plain;
    secondary.secondary_ranks = 2;
    EXPECT_EQ(difference(run(plain), run(secondary), 0, Norms::ignored), "") << text_of(secondary);
  }
}

// Gradients as codes, neighbours first: close to one hop's losses.
TEST(TwoHops, TrainNearlyAsOneHopDoes) {
  for (const std::int32_t zero : {1, 2, 3}) {
    workload::Layout layout{.dp = 4, .zero = zero, .microbatches = 2, .compression = workload::CompressionWay::int8};
    const TrainResult single = run(layout);
    layout.near_ranks = 2;
    const TrainResult two = run(layout);
    ASSERT_EQ(single.steps.size(), two.steps.size());
    for (std::size_t i = 0; i < single.steps.size(); ++i) EXPECT_NEAR(single.steps[i].loss, two.steps[i].loss, 0.01);
    EXPECT_NE(single.steps.back().loss, two.steps.back().loss) << "is it another way at all?";
  }
}

// Rank 0 sends in each lane exactly the bytes that the step's groups imply.
TEST(HybridSharding, SendsWhatTheStepCounts) {
  for (const std::int32_t zero : {1, 2, 3}) {
    TrainOptions options = options_of({.dp = 4, .zero = zero, .shard_ranks = 2, .microbatches = 2});
    // All parameters are whole shards: nothing is padded.
    options.model = workload::parse_model("layers=4,hidden=64,heads=4,vocabulary=256,sequence=16,dropout=no");
    run_trainers(options, [&](const TrainStep& made, RankTrainer& trainer) {
      trainer.train_step(1);
      const StepCollectives& collectives = trainer.model().collectives();
      const double in_set =
          collectives.sent_bytes(schedules::Lane::gather) + collectives.sent_bytes(schedules::Lane::reduce);
      const double norm = schedules::wire_bytes(schedules::Comm::all_reduce, sizeof(double), 4);
      const schedules::SentBytes counted =
          schedules::count_sent(made.step)[static_cast<std::size_t>(trainer.model().rank())];
      EXPECT_DOUBLE_EQ(collectives.sent_bytes(schedules::Lane::replicas), counted.of(schedules::GroupKind::replicas));
      EXPECT_DOUBLE_EQ(in_set - norm, counted.of(schedules::GroupKind::data));
    });
  }
}

TEST_F(Layouts, AllAtOnce) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    compare({.dp = 2, .tp = 2, .pp = 2, .zero = zero, .microbatches = 4, .sequence_parallel = zero % 2 == 0});
    compare({.dp = 2,
             .tp = 2,
             .pp = 2,
             .zero = zero,
             .schedule = "zb_h1",
             .microbatches = 2,
             .recompute = workload::Recompute::full});
  }
}

// Rounded gradients give nearly the same curve: bf16 keeps 8 bits of each, int8 7 bits of the largest of 256.
TEST_F(Layouts, CompressedGradientsTrainNearlyAlike) {
  TrainOptions options = options_of({.dp = 4, .bucket_cap_bytes = 20'000});
  const TrainResult plain = run(options);
  options.layout.compression = workload::CompressionWay::bf16;
  const TrainResult bf16 = run(options);
  options.layout.compression = workload::CompressionWay::int8;
  const TrainResult int8 = run(options);
  EXPECT_EQ(difference(plain, bf16, 3e-3), "");
  EXPECT_EQ(difference(plain, int8, 1e-2), "");
  EXPECT_NE(bf16.steps.back().loss, plain.steps.back().loss);
  EXPECT_NE(int8.steps.back().loss, bf16.steps.back().loss);
  options.layout.zero = 3;  // reduce-scatters
  const TrainResult scattered = run(options);
  EXPECT_EQ(difference(plain, scattered, 1e-2), "");
  EXPECT_NE(scattered.steps.back().loss, plain.steps.back().loss);
  options.layout.compression = workload::CompressionWay::topk;
  EXPECT_NE(error_of([&] { run(options); }).find("--compression is topk"), std::string::npos);
  options.layout.compression = workload::CompressionWay::int8;
  options.layout.shard_ranks = 2;  // and all-reduces over replicas
  const TrainResult hybrid = run(options);
  EXPECT_EQ(difference(plain, hybrid, 1e-2), "");
  EXPECT_NE(hybrid.steps.back().loss, int8.steps.back().loss);
  options.layout.gradient = options.layout.compute = core::DType::bf16;
  EXPECT_NE(error_of([&] { run(options); }).find("--grad-dtype f32"), std::string::npos);
}

// Three microbatches whose weight gradients wait hold the formula's bytes for each layer, besides the logits' gradient,
// the last norm's output and the gradient of the embedding.
TEST(MemoryNeed, WhatWaitsForWIsCounted) {
  const auto activations_of = [](const std::string& list) {
    workload::Layout layout{.microbatches = 4};
    layout.own_schedule = std::make_shared<const schedules::Schedule>(schedules::parse_csv(list, "list", 1));
    return run(options_of(layout)).steps.back().peak_bytes[static_cast<std::size_t>(parallel::MemoryKind::activations)];
  };
  const std::int64_t at_once = activations_of("0F0,0I0,0W0,0F1,0I1,0W1,0F2,0I2,0W2,0F3,0I3,0W3");
  const std::int64_t late = activations_of("0F0,0I0,0F1,0I1,0F2,0I2,0F3,0I3,0W0,0W1,0W2,0W3");
  const TrainOptions options = options_of({.microbatches = 4});
  const double a_microbatch =
      workload::activations_of(options.model, options.layout, slice_of(options.model, options.layout, 1, 0)).later;
  EXPECT_NEAR(static_cast<double>(late - at_once), 3 * a_microbatch, 0.02 * 3 * a_microbatch);
  EXPECT_GT(kept_share_for_w(options.model, options.layout), 0.9);
  EXPECT_LT(kept_share_for_w(options.model, options.layout), 1);
}

TEST(MemoryNeed, TooMuchIsRefusedWithWhatHelps) {
  TrainOptions options = options_of({});
  options.model = workload::parse_model("gpt2-1.5b");
  options.model.layers = 4000;
  options.layout.microbatch_size = 1;
  const std::string refusal = error_of([&] { run(options); });
  EXPECT_NE(refusal.find("needs about"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("--zero 3"), std::string::npos) << refusal;
  EXPECT_EQ(refusal.find("--shard-ranks"), std::string::npos) << refusal;
  options.layout = {.dp = 4, .zero = 3, .shard_ranks = 2};
  EXPECT_NE(error_of([&] { run(options); }).find("a larger --shard-ranks"), std::string::npos);
  options.layout = {};
  options.model = workload::parse_model("nano");
  options.model.sequence = 128;
  options.layout.microbatch_size = 1 << 20;
  EXPECT_NE(error_of([&] { run(options); }).find("--recompute full"), std::string::npos);
}

TEST(Resume, GivesTheSameBits) {
  for (const core::DType compute : {core::DType::f32, core::DType::bf16, core::DType::f16}) {
    for (const workload::Layout& layout : {workload::Layout{.microbatches = 2}, workload::Layout{.dp = 2, .zero = 1},
                                           workload::Layout{.dp = 2, .zero = 3},
                                           workload::Layout{.dp = 4, .zero = 3, .shard_ranks = 2, .microbatches = 2},
                                           workload::Layout{.dp = 2, .tp = 2, .pp = 2, .zero = 2, .microbatches = 2}}) {
      TrainOptions whole = options_of(layout);
      whole.layout.compute = compute;
      EXPECT_EQ(difference(run(whole), resumed(whole, whole, 3), 0), "") << text_of(layout);
    }
  }
}

// Checkpoints contain the error feedback and PowerSGD's Q.
TEST(Resume, GivesTheSameBitsWithCompressedGradients) {
  using Case = std::tuple<const char*, std::int32_t, std::int32_t>;
  for (const auto& [way, zero, near_ranks] :
       {Case{"topk:density=0.05", 0, 0}, Case{"sign", 0, 0}, Case{"randomk:density=0.1", 0, 0},
        Case{"powersgd:rank=2", 0, 0}, Case{"int4:feedback=1", 3, 0}, Case{"int4:feedback=1", 2, 2}}) {
    workload::Layout layout{.dp = 4, .zero = zero, .near_ranks = near_ranks, .microbatches = 2};
    layout.bucket_cap_bytes = 20'000;
    layout.compression = workload::parse_compression(way);
    const TrainOptions options = options_of(layout);
    EXPECT_EQ(difference(run(options), resumed(options, options, 3), 0, Norms::ignored), "") << text_of(layout);
  }
}

TEST(Resume, SaysWhatBecomesOfErrorsOfCompressedGradients) {
  const TemporaryFolder folder;
  TrainOptions options = options_of({.dp = 2, .compression = workload::CompressionWay::sign}, 2);
  options.checkpoint_folder = folder / "checkpoints";
  run(options);
  const auto note = [&](const workload::Layout& layout) {
    return note_on_resume(options_of(layout), options.checkpoint_folder);
  };
  EXPECT_EQ(note({.dp = 2, .compression = workload::CompressionWay::sign}), "");
  EXPECT_EQ(note({.dp = 2, .microbatches = 2, .compression = workload::CompressionWay::sign}), "");
  EXPECT_NE(note({.dp = 4, .compression = workload::CompressionWay::sign}).find("tp=1,pp=1,dp=4"), std::string::npos);
  EXPECT_NE(note({.dp = 2}).find("is ignored"), std::string::npos);
  const TrainOptions signs = options_of({.dp = 2, .compression = workload::CompressionWay::sign});
  EXPECT_EQ(resumed(signs, options_of({.dp = 4}), 3).steps.size(), static_cast<std::size_t>(kSteps));
}

TEST_F(Layouts, ARunGoesOnInAnotherLayout) {
  const workload::Layout layouts[] = {{.microbatches = 2},
                                      {.dp = 4, .zero = 3},
                                      {.dp = 4, .zero = 2, .shard_ranks = 2},
                                      {.tp = 2, .pp = 2, .schedule = "zb_v", .microbatches = 4},
                                      {.dp = 2, .tp = 4, .zero = 1, .sequence_parallel = true}};
  for (const workload::Layout& before : layouts) {
    for (const workload::Layout& after : layouts) {
      EXPECT_EQ(difference(single(), resumed(options_of(before), options_of(after), 3), 1e-5), "")
          << text_of(before) << ", then " << text_of(after);
    }
  }
}

// All elements of all tensors, by name.
std::map<std::string, std::vector<float>> contents_of(const std::string& folder) {
  Checkpoint checkpoint(folder);
  std::map<std::string, std::vector<float>> contents;
  for (const auto& [name, shape] : checkpoint.tensors()) {
    std::vector<float>& values = contents[name];
    values.resize(static_cast<std::size_t>(elems_of(shape)));
    const WholeTensor tensor{name, shape};
    const Piece piece{0, 0, static_cast<std::int64_t>(values.size()), values.data()};
    checkpoint.read({&tensor, 1}, {&piece, 1});
  }
  return contents;
}

// Weights and moments, read and written again in another layout: the same bits.
TEST(Resume, ShardsAreWrittenOnceAndReadInAnyLayout) {
  const TemporaryFolder folder;
  TrainOptions options = options_of({.dp = 4, .zero = 3, .shard_ranks = 2});
  options.steps = 2;
  options.checkpoint_folder = folder / "first";
  run(options);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options.checkpoint_folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().filename().string());
  }
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files, (std::vector<std::string>{"rank-00000.safetensors", "rank-00001.safetensors"}));
  const auto expected = contents_of(options.checkpoint_folder);
  EXPECT_GT(expected.size(), 3 * 4 * 12U);  // twelve parameters per layer, and both moments of each
  for (const workload::Layout& layout : {workload::Layout{.microbatches = 2}, workload::Layout{.dp = 4, .zero = 3},
                                         workload::Layout{.dp = 8, .zero = 1, .shard_ranks = 4},
                                         workload::Layout{.dp = 4, .tp = 2, .zero = 2, .shard_ranks = 2}}) {
    TrainOptions other = checked(options_of(layout));
    other.checkpoint_folder = folder / "other";
    run_trainers(other, [&](const TrainStep& /*made*/, RankTrainer& trainer) {
      save_run(trainer, other, resume_run(trainer, other, options.checkpoint_folder) + 1);
    });
    EXPECT_EQ(contents_of(other.checkpoint_folder), expected) << text_of(layout);
    std::filesystem::remove_all(other.checkpoint_folder);
  }
}

// Each implementation of products by itself, on several ranks of several threads; a checkpoint names it.
TEST(SameBits, OfEachImplementationOfProducts) {
  for (const std::string& name : kernels::gemm_implementations(core::DType::f32)) {
    const TemporaryFolder folder;
    TrainOptions options = options_of({.dp = 2, .tp = 2, .zero = 1}, 3);
    options.threads = 2;
    options.gemm = name;
    options.checkpoint_folder = folder / "checkpoints";
    const TrainResult first = run(options);
    EXPECT_EQ(difference(first, run(options), 0), "") << name;
    EXPECT_EQ(gemm_of_checkpoint(options.checkpoint_folder, core::DType::f32), name);
    EXPECT_EQ(gemm_of_checkpoint(options.checkpoint_folder, core::DType::bf16), "");
  }
  TrainOptions options = options_of({});
  options.gemm = "cublas";
  EXPECT_NE(error_of([&] { run(options); }).find("'cublas' is not available"), std::string::npos);
}

TEST(Resume, AnotherModelIsRefused) {
  const TemporaryFolder folder;
  TrainOptions options = options_of({});
  options.steps = 1;
  options.checkpoint_folder = folder / "checkpoints";
  run(options);
  options.resume = options.checkpoint_folder;
  options.model.layers = 3;
  EXPECT_NE(error_of([&] { run(options); }).find("layers"), std::string::npos);
  options.resume = folder / "nothing";
  EXPECT_NE(error_of([&] { run(options); }).find("nothing"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::trainer
