#include "trainer/train/train.h"

#include <deque>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/hugging_face.h"

namespace lockstep::trainer {
namespace {

constexpr const char* kDtype = "dtype";
constexpr const char* kGemm = "gemm";
constexpr const char* kOwers = "errors_of";
constexpr const char* kOptimizer = "optimizer";

// Error feedback belongs to a bucket and a rank. Returns the part of the layout that determines which rank has which
// buckets and how they are reduced; empty if there is no error feedback.
std::string owers_of(const workload::Layout& layout) {
  if (!layout.compression.remembers()) return "";
  workload::Layout owers{.dp = layout.dp, .tp = layout.tp, .pp = layout.pp, .cp = layout.cp, .ep = layout.ep};
  owers.order = layout.order;
  owers.zero = layout.zero;
  owers.shard_ranks = layout.shard_ranks;
  owers.near_ranks = layout.near_ranks;
  owers.schedule = layout.schedule;
  owers.chunks = layout.chunks;
  owers.layers_of = layout.layers_of;
  owers.bucket_cap_bytes = layout.bucket_cap_bytes;
  owers.gather_lists = layout.gather_lists;
  owers.compression = layout.compression;
  return text_of(owers);
}

// Numbers that the model must share with a checkpoint to use its weights: GPT-2's, and those for rotary
// positions. The shapes of tensors determine everything else.
Integers integers_of(const workload::Model& model) {
  Integers integers{{"layers", model.layers},
                    {"hidden", model.hidden},
                    {"heads", model.heads},
                    {"vocabulary", model.vocabulary},
                    {"positions", model.positions}};
  if (model.learned_positions) return integers;
  integers["positions"] = 0;
  integers["rope_theta"] = model.rope_theta;
  integers["rope_pairs"] = static_cast<std::int64_t>(model.rope_pairs);
  if (model.rope_factor == 1) return integers;
  integers["rope_factor"] = model.rope_factor;
  integers["rope_low_freq_factor"] = model.rope_low_freq_factor;
  integers["rope_high_freq_factor"] = model.rope_high_freq_factor;
  integers["rope_original_positions"] = model.rope_original_positions;
  return integers;
}

std::map<std::string, std::string> layout_of(const TrainOptions& options) {
  const workload::Layout& layout = options.layout;
  std::map<std::string, std::string> all{{kDtype, std::string(core::short_name_of(options.layout.compute))},
                                         {kGemm, options.gemm},
                                         {kOptimizer, std::string(kernels::rule_of(layout.optimizer).name)},
                                         {"dp", std::to_string(layout.dp)},
                                         {"tp", std::to_string(layout.tp)},
                                         {"pp", std::to_string(layout.pp)},
                                         {"zero", std::to_string(layout.zero)},
                                         {"shard_ranks", std::to_string(layout.shard_ranks)},
                                         {kOwers, owers_of(layout)},
                                         {"schedule", layout.schedule}};
  if (layout.delayed_update) all["delayed_update"] = "yes";
  return all;
}

CheckpointRanks ranks_of(RankTrainer& trainer) {
  transports::World& world = trainer.model().mesh().messages;
  return {trainer.model().rank(), [&world](const std::string& mine) { return gather_text(world, mine); }};
}

Manifest manifest_of(RankTrainer& trainer, const TrainOptions& options, std::int64_t step) {
  const LossScale& scale = trainer.loss_scale();
  return {.step = step,
          .model = integers_of(options.model),
          .layout = layout_of(options),
          .integers = {{"tokens", step * options.tokens_per_step()},
                       {"seed", static_cast<std::int64_t>(options.seed)},
                       {"sequences_per_step", options.layout.global_batch()},
                       {"good_steps", scale.good_steps}},
          .reals = {{"loss_scale", scale.scale}}};
}

// Copies of a trainer's state while a checkpoint is written: they live as long as the pieces that refer to them.
using Copies = std::deque<std::vector<float>>;

// Adds values as a whole tensor of this rank.
void add(const std::string& name, std::span<float> values, Held& held) {
  const auto count = static_cast<std::int64_t>(values.size());
  held.pieces.push_back({held.tensors.size(), 0, count, values.data()});
  held.tensors.push_back({name, {count}});
}
void add(const std::string& name, std::vector<float> values, Copies& copies, Held& held) {
  if (!values.empty()) add(name, copies.emplace_back(std::move(values)), held);
}

void read(const std::string& name, std::span<float> values, Checkpoint& checkpoint) {
  Held held;
  add(name, values, held);
  checkpoint.read(held.tensors, held.pieces);
}
// Returns an empty vector if the checkpoint has no tensor of that name.
std::vector<float> values_of(const std::string& name, Checkpoint& checkpoint) {
  const auto found = checkpoint.tensors().find(name);
  if (found == checkpoint.tensors().end()) return {};
  std::vector<float> values(static_cast<std::size_t>(elems_of(found->second)));
  read(name, values, checkpoint);
  return values;
}

// State of delayed scaling of 8-bit floats, per rank and stage, because each rank encodes its own tensors.
std::string fp8_name(RankTrainer& trainer, const RankStage& stage) {
  return fmt::format("fp8_history.{}.{}", trainer.model().rank(), stage.stage);
}
void add_fp8_histories(RankTrainer& trainer, Copies& copies, Held& held) {
  for (RankStage& stage : trainer.model().stages()) {
    add(fp8_name(trainer, stage), stage.model->fp8_history(), copies, held);
  }
}
// A checkpoint of the same layout has the whole history; one of another layout may have none, and the history then
// starts empty.
void read_fp8_histories(RankTrainer& trainer, Checkpoint& checkpoint) {
  for (RankStage& stage : trainer.model().stages()) {
    const std::vector<float> values = values_of(fp8_name(trainer, stage), checkpoint);
    if (!values.empty() && values.size() == stage.model->fp8_history().size()) stage.model->set_fp8_history(values);
  }
}

// Calls visit(stage, layer, name) for the router biases of loss-free balancing of each layer.
template <class Visit>
void for_router_biases(RankTrainer& trainer, const Visit& visit) {
  for (RankStage& stage : trainer.model().stages()) {
    const workload::StageSlice& place = stage.plan->place;
    for (std::int64_t layer = 0; layer < place.layers; ++layer) {
      visit(stage, layer, "router_bias." + std::to_string(place.first_layer + layer));
    }
  }
}
// All ranks with a layer have the same biases; the first such rank writes them.
void add_router_biases(RankTrainer& trainer, Copies& copies, Held& held) {
  const workload::Coordinates& at = trainer.model().place();
  if (at.tp != 0 || workload::data_index_of(trainer.model().layout(), at) != 0) return;
  for_router_biases(trainer, [&](RankStage& stage, std::int64_t layer, const std::string& name) {
    add(name, stage.model->router_bias(layer), copies, held);
  });
}
// A checkpoint of a run without such balancing has none; biases then start at 0.
void read_router_biases(RankTrainer& trainer, Checkpoint& checkpoint) {
  for_router_biases(trainer, [&](RankStage& stage, std::int64_t layer, const std::string& name) {
    std::vector<float> values = stage.model->router_bias(layer);
    if (values.empty() || !checkpoint.tensors().contains(name)) return;
    read(name, values, checkpoint);
    stage.model->set_router_bias(layer, values);
  });
}

// State of compressed reductions (parallel::CompressionState), per rank and bucket, because each rank keeps the error
// of its own messages: "residual.RANK.STAGE.BUCKET.calls", and ".0", ".1" of each tensor that is kept.
constexpr std::int64_t kDigit = 1 << 24;  // integers below this are exact in f32

std::string residual_name(RankTrainer& trainer, const StepCollectives::Bucket& bucket, const std::string& what) {
  return fmt::format("residual.{}.{}.{}.{}", trainer.model().rank(), bucket.first, bucket.second, what);
}
void add_residuals(RankTrainer& trainer, Copies& copies, Held& held) {
  for (auto& [bucket, state] : trainer.model().collectives().states()) {
    const std::int64_t high_digit = state.calls / kDigit;
    add(residual_name(trainer, bucket, "calls"),
        {static_cast<float>(state.calls % kDigit), static_cast<float>(high_digit)}, copies, held);
    for (std::size_t k = 0; k < state.kept().size(); ++k) {
      const kernels::InOut& kept = state.kept()[k];
      add(residual_name(trainer, bucket, std::to_string(k)),
          std::span(kept.as<float>(), static_cast<std::size_t>(kept.elems)), held);
    }
  }
}
void read_residual(RankTrainer& trainer, const StepCollectives::Bucket& bucket, Checkpoint& checkpoint) {
  const std::vector<float> calls = values_of(residual_name(trainer, bucket, "calls"), checkpoint);
  if (calls.size() != 2) return;
  std::vector<std::vector<float>> kept;
  const auto next = [&] { return values_of(residual_name(trainer, bucket, std::to_string(kept.size())), checkpoint); };
  for (std::vector<float> values = next(); !values.empty(); values = next()) kept.push_back(std::move(values));
  parallel::CompressionState& state = trainer.model().collectives().states()[bucket];
  state.calls = static_cast<std::int64_t>(calls[0]) + kDigit * static_cast<std::int64_t>(calls[1]);
  state.restore(std::move(kept));
}
// Called before the first step.
void read_residuals(RankTrainer& trainer, Checkpoint& checkpoint) {
  for (const RankStage& stage : trainer.model().stages()) {
    for (std::int32_t b = 0; b < stage.store->num_buckets(); ++b) read_residual(trainer, {stage.stage, b}, checkpoint);
  }
}

// The same for the run that wrote a checkpoint.
std::string owers_of(const Manifest& manifest) {
  const auto found = manifest.layout.find(kOwers);
  return found == manifest.layout.end() ? "" : found->second;
}

void save_to(const std::string& folder, RankTrainer& trainer, const TrainOptions& options, std::int64_t step) {
  Held held;
  for (RankStage& stage : trainer.model().stages()) add_state(*stage.store, held);
  Copies copies;
  add_fp8_histories(trainer, copies, held);
  add_router_biases(trainer, copies, held);
  add_residuals(trainer, copies, held);
  save_checkpoint(folder, manifest_of(trainer, options, step), held.tensors, held.pieces, ranks_of(trainer),
                  options.checkpoints_kept);
}

}  // namespace

void save_run(RankTrainer& trainer, const TrainOptions& options, std::int64_t step) {
  save_to(options.checkpoint_folder, trainer, options, step);
}

namespace {

void check_optimizer(const TrainOptions& options, const Checkpoint& checkpoint) {
  const std::map<std::string, std::string>& layout = checkpoint.manifest().layout;
  const auto found = layout.find(kOptimizer);
  const std::string theirs = found == layout.end() ? "adamw" : found->second;  // older checkpoints do not name it
  const std::string mine(kernels::rule_of(options.layout.optimizer).name);
  if (theirs == mine) return;
  throw core::usage_error(checkpoint.path() + " has the states of the optimizer " + theirs + ", and this run's is " +
                          mine + "; allowed: --optimizer " + theirs);
}

}  // namespace

void check_resume(const TrainOptions& options) {
  if (!options.resume.empty()) check_optimizer(options, Checkpoint(options.resume));
}

std::int64_t resume_run(RankTrainer& trainer, const TrainOptions& options, const std::string& path) {
  Checkpoint checkpoint(path);
  const Manifest& manifest = checkpoint.manifest();
  check_optimizer(options, checkpoint);
  require_same(checkpoint.path(), manifest.model, integers_of(options.model));
  Held held;
  for (RankStage& stage : trainer.model().stages()) add_state(*stage.store, held);
  checkpoint.read(held.tensors, held.pieces);
  for (RankStage& stage : trainer.model().stages()) state_was_read(*stage.store);
  read_fp8_histories(trainer, checkpoint);
  read_router_biases(trainer, checkpoint);
  if (owers_of(manifest) == owers_of(options.layout)) read_residuals(trainer, checkpoint);
  trainer.gather_weights();
  trainer.loss_scale() = {static_cast<float>(manifest.reals.at("loss_scale")),
                          static_cast<std::int32_t>(manifest.integers.at("good_steps"))};
  return manifest.step;
}

std::string note_on_resume(const TrainOptions& options, const std::string& path) {
  const std::string theirs = owers_of(Checkpoint(path).manifest());
  const std::string mine = owers_of(options.layout);
  if (theirs == mine) return "";
  if (theirs.empty()) return "the checkpoint has no error feedback of compressed gradients: feedback starts at zero";
  return "error feedback in the checkpoint is ignored, because it was written with " + theirs +
         (mine.empty() ? "; this run does not compress gradients"
                       : ", and this run uses " + mine + ": feedback starts at zero");
}

std::string gemm_of_checkpoint(const std::string& path, core::DType compute) {
  const Checkpoint checkpoint(path);
  const std::map<std::string, std::string>& layout = checkpoint.manifest().layout;
  const auto dtype = layout.find(kDtype);
  const auto gemm = layout.find(kGemm);
  if (dtype == layout.end() || gemm == layout.end() || dtype->second != core::short_name_of(compute)) return "";
  return gemm->second;
}

std::string note_on_weights(const TrainOptions& options) {
  return options.init_from.empty() ? "" : check_model_folder(WeightFiles(options.init_from), options.model);
}

void init_run(RankTrainer& trainer, const TrainOptions& options, const std::string& file) {
  const WeightFiles source(file);
  const HuggingFaceNames names(options.model);
  Held held;
  for (RankStage& stage : trainer.model().stages()) add_masters(*stage.store, held);
  read_hugging_face(names, source, held.tensors, held.pieces);
  for (RankStage& stage : trainer.model().stages()) masters_were_read(*stage.store);
  trainer.gather_weights();
}

void export_run(RankTrainer& trainer, const TrainOptions& options, std::int64_t step, const std::string& file) {
  const bool keeps = !options.checkpoint_folder.empty();
  const std::string folder = keeps ? options.checkpoint_folder : file + ".checkpoint";
  if (!keeps) save_to(folder, trainer, options, step);
  if (trainer.model().rank() == 0) {
    Checkpoint checkpoint(folder);
    export_hugging_face(HuggingFaceNames(options.model), checkpoint, file);
    if (!keeps) std::filesystem::remove_all(folder);
  }
  trainer.model().mesh().messages.barrier();
}

}  // namespace lockstep::trainer
