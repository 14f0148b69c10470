#include "bench/place/step_energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "bench/place/place.h"

namespace lockstep::program {

core::OpenedEnergyMeter open_energy(const backends::DeviceChoice& device, const transports::MpiWorld* mpi, int ranks) {
  if (mpi != nullptr && mpi->placement().num_hosts > 1) {
    return {nullptr, "", 0, "no energy: ranks are on several hosts"};
  }
  if (!device.cuda) return core::open_cpu_energy();
  std::vector<std::string> pci_ids;
  for (const core::CudaDeviceInfo& gpu : gpus_of(device, ranks)) {
    pci_ids.push_back(gpu.pci_id);
  }
  return core::open_gpu_energy(pci_ids);
}

std::optional<StepEnergy::Mark> StepEnergy::now() {
  if (!opened_.meter) return std::nullopt;
  const auto joules = opened_.meter->joules();
  if (!joules) {
    opened_ = {nullptr, "", 0, "no energy: a counter could not be read while the run went on"};
    return std::nullopt;
  }
  return Mark{*joules, core::Clock::now()};
}

void StepEnergy::begin_step() {
  mark_ = now();
}

void StepEnergy::end_step(std::int64_t steps) {
  const auto before = mark_;
  mark_ = now();
  if (!before || !mark_) return;
  steps_ += steps;
  joules_ += mark_->joules - before->joules;
  seconds_ += core::us_between(before->time, mark_->time) * 1e-6;
}

void StepEnergy::end_pause() {
  if (mark_) mark_ = now();
}

std::optional<core::EnergyRecord> StepEnergy::record(std::int64_t tokens_per_step) const {
  if (!opened_.meter || joules_ <= 0 || seconds_ <= 0) return std::nullopt;
  const auto steps = static_cast<double>(steps_);
  return core::EnergyRecord{.source = opened_.source,
                            .devices = opened_.devices,
                            .steps = steps_,
                            .seconds = seconds_,
                            .joules_per_step = joules_ / steps,
                            .watts = joules_ / seconds_,
                            .tokens_per_joule = static_cast<double>(tokens_per_step) * steps / joules_};
}

std::string StepEnergy::text(std::int64_t tokens_per_step) const {
  const auto energy = record(tokens_per_step);
  if (!energy)
    return fmt::format("# {}\n", opened_.meter ? "no energy: the run was too short to count" : opened_.why_absent);
  return fmt::format("# energy: {:.4g} J per step, {:.4g} W, {:.4g} tokens per joule; {} {}{} by {}, {} steps\n",
                     energy->joules_per_step, energy->watts, energy->tokens_per_joule, energy->devices,
                     energy->source == "nvml" ? "GPU" : "CPU package", energy->devices == 1 ? "" : "s",
                     energy->source == "nvml" ? "NVML" : "RAPL", energy->steps);
}

}  // namespace lockstep::program
