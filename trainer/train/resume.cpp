#include "trainer/train/resume.h"

#include <array>
#include <map>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/gather_text.h"
#include "trainer/checkpoint/save_checkpoint.h"

namespace lockstep::trainer {
namespace {

using State = parallel::ParameterStore::State;

struct NamedState {
  State state;
  const char* prefix;
};
constexpr std::array kStates{NamedState{State::master, "master."}, NamedState{State::first_moment, "moment1."},
                             NamedState{State::second_moment, "moment2."}};

Integers integers_of(const GptConfig& model) {
  return {{"layers", model.layers},
          {"hidden", model.hidden},
          {"heads", model.heads},
          {"vocabulary", model.vocabulary},
          {"positions", model.length}};
}

std::map<std::string, std::string> layout_of(const TrainLayout& layout) {
  return {{"dp", std::to_string(layout.dp)},
          {"tp", std::to_string(layout.tp)},
          {"pp", std::to_string(layout.pp)},
          {"zero", std::to_string(layout.zero)},
          {"schedule", layout.schedule}};
}

// Of one state on one rank.
struct Part {
  std::vector<WholeTensor> tensors;
  std::vector<Piece> pieces;
};

void add(Part& part, RankStage& stage, const NamedState& named) {
  const std::size_t first = part.tensors.size();
  for (const parallel::Parameter& parameter : stage.plan->parameters) {
    part.tensors.push_back({named.prefix + parameter.name, parameter.shape});
  }
  for (const auto& run : stage.store->runs(named.state)) {
    part.pieces.push_back({first + run.parameter, run.whole_begin, run.count, run.data});
  }
}

}  // namespace

void save_run(RankTrainer& trainer, const TrainOptions& options, std::int64_t step) {
  Part part;
  for (const NamedState& named : kStates) {
    for (RankStage& stage : trainer.model().stages()) add(part, stage, named);
  }
  const LossScale& scale = trainer.loss_scale();
  const Manifest manifest{.step = step,
                          .model = integers_of(options.model),
                          .layout = layout_of(options.layout),
                          .integers = {{"tokens", step * options.tokens_a_step()},
                                       {"seed", static_cast<std::int64_t>(options.seed)},
                                       {"sequences_a_step", options.sequences_a_step()},
                                       {"good_steps", scale.good_steps}},
                          .reals = {{"loss_scale", scale.scale}}};
  transports::World& world = trainer.model().mesh().messages;
  const CheckpointRanks ranks{trainer.model().rank(),
                              [&world](const std::string& mine) { return gather_text(world, mine); }};
  save_checkpoint(options.checkpoint_folder, manifest, part.tensors, part.pieces, ranks, options.checkpoints_kept);
}

std::int64_t resume_run(RankTrainer& trainer, const TrainOptions& options, const std::string& path) {
  Checkpoint checkpoint(path);
  require_same(checkpoint.path(), checkpoint.manifest().model, integers_of(options.model));
  for (const NamedState& named : kStates) {
    for (RankStage& stage : trainer.model().stages()) {
      Part part;
      add(part, stage, named);
      checkpoint.read(part.tensors, part.pieces);
      stage.store->store_back(named.state);
    }
  }
  for (RankStage& stage : trainer.model().stages()) stage.store->masters_changed();
  trainer.gather_weights();
  const Manifest& manifest = checkpoint.manifest();
  trainer.loss_scale() = {static_cast<float>(manifest.reals.at("loss_scale")),
                          static_cast<std::int32_t>(manifest.integers.at("good_steps"))};
  return manifest.step;
}

}  // namespace lockstep::trainer
