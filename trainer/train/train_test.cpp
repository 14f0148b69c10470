// The same losses whatever the layout: a run on one rank is what all others are compared with.
#include "trainer/train/train.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

constexpr std::int64_t kSteps = 5;
constexpr std::int64_t kBatch = 16;  // sequences a step, in every layout

GptConfig tiny() {
  return {.name = "tiny", .layers = 4, .hidden = 32, .heads = 4, .vocabulary = 256, .length = 16};
}

TrainOptions options_of(const TrainLayout& layout) {
  TrainOptions options;
  options.model = tiny();
  options.layout = layout;
  options.batch = kBatch / (layout.dp * layout.microbatches);
  options.length = 16;
  options.steps = kSteps;
  options.rate = {.peak = 3e-3, .floor = 3e-4, .warmup = 2, .steps = kSteps};
  options.synthetic_bytes = 1 << 14;
  options.validation_sequences = 16;
  options.timeout = std::chrono::seconds(60);
  return options;
}

TrainResult run(const TrainLayout& layout) {
  const TrainOptions options = options_of(layout);
  return train(options, Corpus::synthetic(options.seed, options.synthetic_bytes, options.length));
}

std::string text_of(const TrainLayout& layout) {
  return "dp " + std::to_string(layout.dp) + " tp " + std::to_string(layout.tp) + " pp " + std::to_string(layout.pp) +
         " zero " + std::to_string(layout.zero) + " " + layout.schedule + " v " + std::to_string(layout.chunks) +
         " m " + std::to_string(layout.microbatches) + (layout.sequence_parallel ? " sp" : "") + " recompute " +
         std::to_string(static_cast<int>(layout.recompute));
}

// Sums of f32 in another order: each loss within 1e-5 of the other.
void expect_same_curve(const TrainResult& one, const TrainResult& other, double tolerance, const std::string& what) {
  ASSERT_EQ(one.steps.size(), other.steps.size()) << what;
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_NEAR(one.steps[i].loss, other.steps[i].loss, tolerance * one.steps[i].loss) << what << ", step " << i + 1;
    EXPECT_NEAR(one.steps[i].norm, other.steps[i].norm, 10 * tolerance * one.steps[i].norm) << what;
  }
  EXPECT_NEAR(one.validation_loss, other.validation_loss, tolerance * one.validation_loss) << what;
}

class Layouts : public ::testing::Test {
 protected:
  static const TrainResult& single() {
    static const TrainResult result = run({});
    return result;
  }
  static void compare(const TrainLayout& layout) { expect_same_curve(single(), run(layout), 1e-5, text_of(layout)); }
};

TEST_F(Layouts, OneRankLearns) {
  EXPECT_LT(single().steps.back().loss, single().steps.front().loss - 0.3);
  EXPECT_LT(single().validation_loss, single().steps.front().loss);
}

TEST_F(Layouts, AccumulationIsTheSameBatch) {
  compare({.microbatches = 4});
  compare({.microbatches = 4, .recompute = Recompute::full});
  compare({.microbatches = 2, .recompute = Recompute::selective});
}

TEST_F(Layouts, DataParallelRanksInAllZeroStages) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    compare({.dp = 2, .zero = zero, .bucket_cap_bytes = 20'000});
    compare({.dp = 4, .zero = zero, .microbatches = 2});
  }
}

TEST_F(Layouts, TensorParallelRanks) {
  for (const bool sequence : {false, true}) {
    compare({.tp = 2, .sequence_parallel = sequence});
    compare({.tp = 4, .microbatches = 2, .sequence_parallel = sequence, .recompute = Recompute::full});
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

TEST_F(Layouts, AllAtOnce) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    compare({.dp = 2, .tp = 2, .pp = 2, .zero = zero, .microbatches = 4, .sequence_parallel = zero % 2 == 0});
    compare({.dp = 2,
             .tp = 2,
             .pp = 2,
             .zero = zero,
             .schedule = "zb_h1",
             .microbatches = 2,
             .recompute = Recompute::full});
  }
}

}  // namespace
}  // namespace lockstep::trainer
