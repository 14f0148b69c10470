// Energy that training steps draw on the devices of their ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/transports/mpi_transport.h"
#include "core/energy.h"
#include "core/record.h"
#include "core/wait.h"

namespace lockstep::program {

// Opens a meter for the ranks' GPUs, or for this machine's CPUs; none for several hosts, as one rank reads it.
core::OpenedEnergyMeter open_energy(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks);

// Counts from begin_step(), or the end of the previous step, to end_step(). A first step without begin_step() loads and
// chooses kernels, and is left out. One thread at a time. Counters update every few milliseconds, some GPUs' every 100
// ms: short runs say little.
class StepEnergy {
 public:
  explicit StepEnergy(core::OpenedEnergyMeter opened) : opened_(std::move(opened)) {}

  void begin_step();
  void end_step(std::int64_t steps = 1);  // number of steps that end together
  void end_pause();  // after a validation, for example: energy since the last step belongs to no step
  std::optional<core::EnergyRecord> record(std::int64_t tokens_per_step) const;
  std::string text(std::int64_t tokens_per_step) const;  // one line

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

}  // namespace lockstep::program
