// Small runs for tests: a tiny model on the synthetic text, the same global batches in every layout.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "testing/core/fixtures.h"
#include "testing/core/refusal.h"
#include "trainer/step/train_step.h"
#include "trainer/train/rank_steps.h"
#include "trainer/train/train.h"

namespace lockstep::trainer {

inline constexpr std::int64_t kSteps = 5;
inline constexpr std::int64_t kBatch = 16;  // sequences per step, in every layout

inline workload::Model tiny() {
  return workload::parse_model("layers=4,hidden=32,heads=4,vocabulary=256,sequence=16,dropout=no");
}

// As large, of Llama's blocks.
inline workload::Model tiny_llama() {
  return workload::parse_model(
      "layers=4,hidden=32,heads=8,kv_heads=4,ffn_hidden=80,vocabulary=256,sequence=16,dropout=no,gated=yes,biases=no,"
      "tied_embeddings=no,learned_positions=no,norm=rms");
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

// Layouts whose schedules cut sequences into slices.
inline const std::vector<workload::Layout>& layouts_of_slices() {
  static const std::vector<workload::Layout> kLayouts = {
      {.pp = 2, .schedule = "terapipe", .microbatches = 2, .slices = 4},
      {.pp = 2, .schedule = "seq1f1b", .microbatches = 4, .slices = 3},
      {.pp = 2, .schedule = "seq1f1b_i", .chunks = 2, .microbatches = 2, .slices = 2},
      {.pp = 1, .schedule = "terapipe", .microbatches = 1, .slices = 16},
      {.pp = 4, .schedule = "seq1f1b", .microbatches = 1, .slices = 2, .slice_tokens = {11, 5}},
      {.tp = 2, .pp = 2, .schedule = "seq1f1b", .microbatches = 2, .slices = 4, .sequence_parallel = true},
      {.pp = 2, .schedule = "seq1f1b", .microbatches = 2, .slices = 4, .recompute = workload::Recompute::selective},
      {.dp = 2, .pp = 2, .zero = 3, .schedule = "seq1f1b", .microbatches = 2, .slices = 2, .bucket_cap_bytes = 20'000},
  };
  return kLayouts;
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

// Options of a layout written as text.
inline TrainOptions options_over(const std::string& layout, std::int64_t steps = kSteps) {
  TrainOptions options = options_of({}, steps);
  options.layout = workload::parse_layout_over(options.layout, layout);
  return options;
}

inline std::string refusal_of(const TrainOptions& options) {
  return core::refusal_of([&] { checked(options); });
}

inline Corpus corpus_of(const TrainOptions& options) {
  return Corpus::synthetic(options.seed, options.synthetic_bytes, options.model.sequence);
}

inline TrainResult run(const TrainOptions& options, const TrainObserver& observer = {}) {
  return train(checked(options), corpus_of(options), observer);
}

inline TrainResult run(const workload::Layout& layout) {
  return run(options_of(layout));
}

// This many steps of one run and, from their checkpoint, the rest of another; what the other has found.
inline TrainResult resumed(TrainOptions before, TrainOptions after, std::int64_t steps) {
  const core::TemporaryFolder folder;
  before.steps = steps;
  before.checkpoint_folder = after.resume = folder / "checkpoints";
  TrainResult first = run(before);
  TrainResult all = run(after);
  all.steps.insert(all.steps.begin(), first.steps.begin(), first.steps.end());
  return all;
}

// Core of a run on the synthetic text.
inline void run_trainers(const TrainOptions& options,
                         const std::function<void(const TrainStep& made, RankTrainer& trainer)>& body) {
  const Corpus corpus = corpus_of(options);
  run_trainers(options, corpus, body);
}

inline std::string bytes_difference(const std::string& where, const parallel::BytesByKind& predicted,
                                    const parallel::BytesByKind& counted) {
  std::string differences;
  for (std::size_t k = 0; k < predicted.size(); ++k) {
    if (predicted[k] == counted[k]) continue;
    differences += where + " of " + std::string(name_of(static_cast<parallel::MemoryKind>(k))) + ": " +
                   std::to_string(predicted[k]) + " bytes predicted, " + std::to_string(counted[k]) + " counted\n";
  }
  return differences;
}
// Where a rank of two steps counts other bytes than were predicted for it; empty: nowhere.
inline std::string memory_difference(const TrainOptions& wanted) {
  const TrainOptions options = checked(wanted);
  std::mutex mutex;
  std::string differences;
  run_trainers(options, [&](const TrainStep& made, RankTrainer& trainer) {
    const std::int32_t rank = trainer.model().rank();
    const workload::HeldBytes predicted = memory_need(made, options.model, options.layout, rank);
    for (const std::int64_t step : {1, 2}) {
      trainer.train_step(step);
      const workload::HeldBytes& counted = trainer.held_bytes();
      const std::string where = "step " + std::to_string(step) + ", rank " + std::to_string(rank);
      const std::lock_guard lock(mutex);
      differences += bytes_difference(where + ", at the peak", predicted.at_peak(), counted.at_peak());
      differences += bytes_difference(where + ", the most", predicted.peak_of_each(), counted.peak_of_each());
    }
  });
  return differences;
}

enum class Norms { compared, ignored };

// Where the losses of one run are further from another's than `tolerance` of theirs (sums in another order), or norms
// than ten times that; empty: nowhere.
inline std::string difference(const TrainResult& single, const TrainResult& other, double tolerance,
                              Norms norms = Norms::compared) {
  const auto differ = [](double a, double b, double most) { return !(std::abs(a - b) <= most * std::abs(a)); };
  if (single.steps.size() != other.steps.size()) return "another number of steps";
  for (std::size_t i = 0; i < single.steps.size(); ++i) {
    const StepReport& a = single.steps[i];
    const StepReport& b = other.steps[i];
    if (a.step != b.step) return "the number of step " + std::to_string(i + 1);
    if (differ(a.loss, b.loss, tolerance)) return "the loss at step " + std::to_string(i + 1);
    if (a.skipped != b.skipped) return "whether step " + std::to_string(i + 1) + " is skipped";
    const bool same_norm = a.norm == b.norm || (std::isnan(a.norm) && std::isnan(b.norm));  // both overflow
    if (norms == Norms::compared && !same_norm && differ(a.norm, b.norm, 10 * tolerance)) {
      return "the norm at step " + std::to_string(i + 1);
    }
  }
  return differ(single.validation_loss, other.validation_loss, tolerance) ? "the validation loss" : "";
}

}  // namespace lockstep::trainer
