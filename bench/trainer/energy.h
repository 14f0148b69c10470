// The energy that the steps of a training run draw on the devices of its ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device_cuda.h"
#include "core/energy.h"
#include "core/record.h"
#include "core/wait.h"
#include "trainer/train/options.h"

namespace lockstep::mini_train {

// A meter for the GPUs of the ranks, or for this machine's CPUs; none for several hosts, as one rank reads it.
core::OpenedEnergyMeter open_energy(const trainer::TrainOptions& options);

// Counts between the end of a step, or of what came between two steps, and the end of the next. The first step loads
// and chooses kernels, and is left out. Counters move every few milliseconds, some GPUs' every 100: short runs say
// little.
class StepEnergy {
 public:
  explicit StepEnergy(core::OpenedEnergyMeter opened) : opened_(std::move(opened)) {}

  void end_step();
  void end_pause();  // of a validation, say: what was drawn since the last step is not of a step
  std::optional<core::EnergyRecord> record(std::int64_t tokens_a_step) const;
  std::string text(std::int64_t tokens_a_step) const;  // a line

 private:
  struct Mark {
    double joules;
    core::Clock::time_point time;
  };
  std::optional<Mark> now();

  core::OpenedEnergyMeter opened_;
  std::optional<Mark> mark_;
  std::int64_t steps_ = 0;
  double joules_ = 0;
  double seconds_ = 0;
};

}  // namespace lockstep::mini_train
