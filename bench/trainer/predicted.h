// mini_train --predict: what the simulator says that a step takes on a machine, before it runs, beside what it took.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/trainer/flags.h"
#include "core/record.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"
#include "simulator/machine/machine.h"
#include "simulator/predict/predict.h"

namespace lockstep::mini_train {

// A step by its parts, in milliseconds, the mean of all ranks: together the step.
struct StepParts {
  double step_ms = 0;
  std::vector<std::pair<std::string, double>> ms = {};  // as a record's, and "around": what no task takes
};

class PredictedStep {
 public:
  // Throws a usage Error where the machine of `flags.predict` is none, or was measured with other threads a rank.
  explicit PredictedStep(const TrainFlags& flags);

  // Before the run: the step's time, and how many of its kernels have prices that were measured.
  std::string text() const;

  // Beside the step that was measured, `timeline` with communication while its bytes move (when_bytes_move()): a line
  // for each part, and where the largest gap comes from.
  std::string text_beside(const schedules::Step& step, const schedules::StepTimeline& timeline, double step_ms) const;

  core::PredictedRecord record(const schedules::Step& step, const schedules::StepTimeline& timeline,
                               double step_ms) const;

 private:
  StepParts parts() const;
  StepParts measured_parts(const schedules::Step& step, const schedules::StepTimeline& timeline, double step_ms) const;
  std::string gap_text(const schedules::Step& step, const schedules::StepTimeline& timeline, double step_ms) const;

  const TrainFlags& flags_;
  simulator::Machine machine_;
  int kernels_ = 0;           // of the step, each shape once
  int measured_kernels_ = 0;  // of these
  simulator::Prediction made_;
};

}  // namespace lockstep::mini_train
