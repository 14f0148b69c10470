// Joules that a run's devices draw: GPUs' by NVML, CPU packages' by RAPL. A source that is not there says why.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/nvml.h"

namespace lockstep::core {

// One thread at a time.
class EnergyMeter {
 public:
  virtual ~EnergyMeter() = default;
  // Joules of whole devices, whoever uses them, since this was made. Nothing where a device could not be read.
  virtual std::optional<double> joules() = 0;
};

struct OpenedEnergyMeter {
  std::unique_ptr<EnergyMeter> meter;  // nullptr: there is none
  std::string source;                  // "nvml" or "rapl"
  int devices = 0;                     // that it counts: GPUs or CPU packages
  std::string why_absent;              // one line
};

OpenedEnergyMeter add_up_gpus(std::vector<std::unique_ptr<GpuMeter>> gpus);

// A meter for the GPUs at these addresses; one that several ranks share is counted once. `library`: for tests.
OpenedEnergyMeter open_gpu_energy(const std::vector<std::string>& pci_ids,
                                  const std::string& library = "libnvidia-ml.so.1");

// A meter for all packages of this machine, cores and uncore, without memory modules: Linux's powercap zones
// "intel-rapl:N", which AMD's processors have, too. Since 2020 only root may read them. `folder`: for tests. A counter
// begins anew after some 10^5 joules: to be asked every few minutes.
OpenedEnergyMeter open_cpu_energy(const std::string& folder = "/sys/class/powercap");

}  // namespace lockstep::core
