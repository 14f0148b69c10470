// Small runs for tests: a tiny model on the synthetic text, the same global batches in every layout.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "trainer/train/train.h"

namespace lockstep::trainer {

inline constexpr std::int64_t kSteps = 5;
inline constexpr std::int64_t kBatch = 16;  // sequences a step, in every layout

inline GptConfig tiny() {
  return {.name = "tiny", .layers = 4, .hidden = 32, .heads = 4, .vocabulary = 256, .length = 16};
}

inline TrainOptions options_of(const TrainLayout& layout, std::int64_t steps = kSteps) {
  TrainOptions options;
  options.model = tiny();
  options.layout = layout;
  options.batch = kBatch / (layout.dp * layout.microbatches);
  options.length = 16;
  options.steps = steps;
  options.rate = {.peak = 3e-3, .floor = 3e-4, .warmup = 2, .steps = steps};
  options.synthetic_bytes = 1 << 14;
  options.validation_sequences = 16;
  options.timeout = std::chrono::seconds(60);
  return options;
}

inline TrainResult run(const TrainOptions& options) {
  return train(options, Corpus::synthetic(options.seed, options.synthetic_bytes, options.length));
}

inline TrainResult run(const TrainLayout& layout) {
  return run(options_of(layout));
}

inline std::string text_of(const TrainLayout& layout) {
  return "dp " + std::to_string(layout.dp) + " tp " + std::to_string(layout.tp) + " pp " + std::to_string(layout.pp) +
         " zero " + std::to_string(layout.zero) + " " + layout.schedule + " v " + std::to_string(layout.chunks) +
         " m " + std::to_string(layout.microbatches) + (layout.sequence_parallel ? " sp" : "") + " recompute " +
         std::to_string(static_cast<int>(layout.recompute));
}

// Sums of f32 in another order: each loss within 1e-5 of the other.
inline void expect_same_curve(const TrainResult& one, const TrainResult& other, double tolerance,
                              const std::string& what) {
  ASSERT_EQ(one.steps.size(), other.steps.size()) << what;
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_NEAR(one.steps[i].loss, other.steps[i].loss, tolerance * one.steps[i].loss) << what << ", step " << i + 1;
    EXPECT_NEAR(one.steps[i].norm, other.steps[i].norm, 10 * tolerance * one.steps[i].norm) << what;
  }
  EXPECT_NEAR(one.validation_loss, other.validation_loss, tolerance * one.validation_loss) << what;
}

}  // namespace lockstep::trainer
