// Small runs for tests: a tiny model on the synthetic text, the same global batches in every layout.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

#include "trainer/step/memory_need.h"
#include "trainer/train/rank_setup.h"
#include "trainer/train/train.h"

namespace lockstep::trainer {

inline constexpr std::int64_t kSteps = 5;
inline constexpr std::int64_t kBatch = 16;  // sequences a step, in every layout

inline workload::Model tiny() {
  return workload::parse_model("layers=4,hidden=32,heads=4,vocabulary=256,sequence=16,dropout=no");
}

// dp x tp x pp with everything that is split, 8 ranks.
inline workload::Layout all_of_them() {
  return {.dp = 2,
          .tp = 2,
          .pp = 2,
          .zero = 3,
          .schedule = "1f1b",
          .microbatches = 2,
          .bucket_cap_bytes = 20'000,
          .sequence_parallel = true};
}

inline TrainOptions options_of(const workload::Layout& layout, std::int64_t steps = kSteps) {
  TrainOptions options;
  options.model = tiny();
  options.layout = layout;
  options.layout.microbatch_size = kBatch / (layout.dp * layout.microbatches);
  options.layout.early_stop = true;
  options.layout.compute = core::DType::f32;
  options.layout.overlap_p2p = true;
  options.steps = steps;
  options.rate = {.peak = 3e-3, .floor = 3e-4, .warmup = 2, .steps = steps};
  options.synthetic_bytes = 1 << 14;
  options.validation_sequences = 16;
  options.timeout = std::chrono::seconds(60);
  return options;
}

inline TrainResult run(const TrainOptions& options) {
  return train(options, Corpus::synthetic(options.seed, options.synthetic_bytes, options.model.sequence));
}

inline TrainResult run(const workload::Layout& layout) {
  return run(options_of(layout));
}

// Bytes of the fullest rank of a run: as predicted, and as counted.
struct MemoryOfARun {
  double predicted;
  double counted;
};
inline MemoryOfARun memory_of(const workload::Layout& layout) {
  const TrainOptions options = options_of(layout);
  const TrainStep made = make_train_step(options.model, options.layout);
  std::int64_t needed = 0;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    needed = std::max(needed, parallel::total_of(memory_need(made, options.model, options.layout, rank)));
  }
  const std::int64_t taken = parallel::total_of(run(options).steps.back().peak_bytes);
  return {static_cast<double>(needed), static_cast<double>(taken)};
}

// Where the losses of one run are further from another's than `tolerance` of theirs (sums in another order), or norms
// than ten times that; empty: nowhere.
inline std::string difference(const TrainResult& one, const TrainResult& other, double tolerance) {
  const auto differ = [](double a, double b, double most) { return !(std::abs(a - b) <= most * std::abs(a)); };
  if (one.steps.size() != other.steps.size()) return "another number of steps";
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    const std::string step = " at step " + std::to_string(i + 1);
    if (differ(one.steps[i].loss, other.steps[i].loss, tolerance)) return "the loss" + step;
    if (differ(one.steps[i].norm, other.steps[i].norm, 10 * tolerance)) return "the norm" + step;
  }
  return differ(one.validation_loss, other.validation_loss, tolerance) ? "the validation loss" : "";
}

}  // namespace lockstep::trainer
