// mini_train --predict: the simulated time of a step on a machine, printed before the run and beside the measured time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/trainer/flags.h"
#include "core/record.h"
#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "simulator/predict/predict.h"

namespace lockstep::mini_train {

// The parts of a step in milliseconds, mean over ranks; they sum to the step.
struct StepParts {
  double step_ms = 0;
  std::vector<std::pair<std::string, double>> ms = {};  // parts as in a record, and "around": time outside of tasks
};

class PredictedStep {
 public:
  // Throws a usage Error if the machine of `flags.predict` does not exist or was measured with other threads per rank.
  explicit PredictedStep(const TrainFlags& flags);

  // Text before the run: the step's time, and how many of its kernels have measured times.
  std::string text() const;

  // Text after the run: one line per part, and the causes of the largest gap. `timeline` has communication while its
  // bytes move (when_bytes_move()).
  std::string text_beside(const schedules::Step& step, const schedules::StepTimeline& timeline, double step_ms) const;

  core::PredictedRecord record(const schedules::Step& step, const schedules::StepTimeline& timeline,
                               double step_ms) const;

 private:
  StepParts parts() const;
  StepParts measured_parts(const schedules::Step& step, const schedules::StepTimeline& timeline, double step_ms) const;
  std::string gap_text(const schedules::Step& step, const schedules::StepTimeline& timeline, double step_ms) const;

  const TrainFlags& flags_;
  simulator::Machine machine_;
  int kernels_ = 0;           // distinct kernel shapes of the step
  int measured_kernels_ = 0;  // those with measured times
  simulator::Prediction made_;
};

}  // namespace lockstep::mini_train
