// A training run as a record (docs/record_format.md).
#pragma once

#include <string>
#include <vector>

#include "bench/trainer/flags.h"
#include "core/record.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"
#include "trainer/train/train.h"

namespace lockstep::mini_train {

core::ModelRecord model_record(const trainer::TrainOptions& options);
core::LayoutRecord layout_record(const workload::Layout& layout);  // text: everything beyond one rank each

// Returns "measured", or "emulated" if links are.
std::string basis_of(const trainer::TrainOptions& options);
core::RunRecord run_record(const TrainFlags& flags);

// Collects a run's events as they happen and can make a record of them at any time. Steps of a long run are thinned out
// to at most 2000.
class TrainingLog {
 public:
  TrainingLog(const TrainFlags& flags, double peak_flops) : flags_(flags), peak_flops_(peak_flops) {}

  void add_step(const trainer::StepReport& report, const schedules::StepTimeline& timeline);
  void add_validation(std::int64_t step, double loss) { validations_.push_back({step, loss}); }

  bool has_timed_step() const { return !timed_.empty(); }
  // The last timed steps; the parts and timeline of a record are those of the step with the median time.
  struct Timed {
    trainer::StepReport report;
    schedules::StepTimeline timeline;
  };
  const Timed& typical() const;
  // Callable once there is a step with times; validations are left out.
  core::TrainingRecord record(const core::RunRecord& run, const schedules::Step& step, const std::string& data) const;
  void add_validations(core::TrainingRecord& record, double unigram_nats, double bigram_nats) const;

 private:
  const TrainFlags& flags_;
  const double peak_flops_;
  std::vector<core::TrainingStepRecord> steps_;
  std::int64_t every_ = 1;  // steps between two that are kept
  std::vector<core::ValidationPoint> validations_;
  std::vector<Timed> timed_;  // the last few
};

}  // namespace lockstep::mini_train
