#include "trainer/train/train.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "trainer/train/rank_setup.h"
#include "trainer/train/resume.h"

namespace lockstep::trainer {
namespace {

bool is_due(std::int64_t step, std::int64_t every, std::int64_t last) {
  return step == last || (every > 0 && step % every == 0);
}

void run_steps(const TrainOptions& options, RankTrainer& trainer, TrainResult& result, const TrainObserver& observer) {
  const bool tells = trainer.model().rank() == 0;
  const std::int64_t done = options.resume.empty() ? 0 : resume_run(trainer, options, options.resume);
  for (std::int64_t step = done + 1; step <= options.steps; ++step) {
    const StepReport report = trainer.train_step(step);
    schedules::StepTimeline timeline;
    if (is_due(step, options.timeline_every, options.steps)) timeline = trainer.gather_timeline();
    if (tells) result.steps.push_back(report);
    if (tells) observer.step(report, timeline);
    if (!options.checkpoint_folder.empty() && is_due(step, options.checkpoint_every, options.steps)) {
      save_run(trainer, options, step);
    }
    if (!is_due(step, options.validate_every, options.steps)) continue;
    const double loss = trainer.validate();
    if (!tells) continue;
    result.validation_loss = loss;
    observer.validation(step, loss);
  }
}

}  // namespace

TrainOptions checked(TrainOptions options) {
  if (options.length == 0) options.length = options.model.length;
  check_layout(options.layout, options.model, options.batch, options.length);
  if (options.layout.gradient != core::DType::f32 && options.layout.gradient != options.compute) {
    throw core::usage_error("--grad-dtype is " + std::string(core::short_name_of(options.layout.gradient)) +
                            ", and --dtype is " + std::string(core::short_name_of(options.compute)) +
                            "; allowed: f32, or as --dtype");
  }
  return options;
}

void run_trainers(const TrainOptions& options, const Corpus& corpus,
                  const std::function<void(const TrainStep& made, RankTrainer& trainer)>& body) {
  const TrainStep made = make_train_step(shape_of(options, 0), options.layout);
  const std::array<const schedules::Step*, 2> steps{&made.step, &made.forward};
  const ChannelMap channels(steps);
  backends::run_mesh(mesh_of(options), channels.channels(), [&](backends::MeshRank& rank) {
    RankTrainer trainer(options, made, corpus, rank, channels);
    body(made, trainer);
  });
}

TrainResult train(TrainOptions options, const Corpus& corpus, const TrainObserver& observer) {
  options = checked(std::move(options));
  TrainResult result;
  run_trainers(options, corpus, [&](const TrainStep& made, RankTrainer& trainer) {
    if (trainer.model().rank() == 0) observer.begin(made.step);
    run_steps(options, trainer, result, observer);
  });
  return result;
}

}  // namespace lockstep::trainer
