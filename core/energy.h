// Energy in joules that a run's devices draw: GPUs by NVML, CPU packages by RAPL. A source that is absent says why.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/nvml.h"

namespace lockstep::core {

// For one thread at a time.
class EnergyMeter {
 public:
  virtual ~EnergyMeter() = default;
  // Joules that the whole devices drew, for any user, since this was made. nullopt if a device could not be read.
  virtual std::optional<double> joules() = 0;
};

struct OpenedEnergyMeter {
  std::unique_ptr<EnergyMeter> meter;  // nullptr if there is none
  std::string source;                  // "nvml" or "rapl"
  int devices = 0;                     // number of GPUs or CPU packages that it counts
  std::string why_absent;              // one line; why there is no meter
};

OpenedEnergyMeter add_up_gpus(std::vector<std::unique_ptr<GpuMeter>> gpus);

// Opens a meter for the GPUs at these addresses; a GPU that several ranks share is counted once. `library` is for
// tests.
OpenedEnergyMeter open_gpu_energy(const std::vector<std::string>& pci_ids,
                                  const std::string& library = "libnvidia-ml.so.1");

// Opens a meter for all packages of this machine, cores and uncore, without memory modules: Linux's powercap zones
// "intel-rapl:N", which AMD's processors have, too. Since 2020 only root may read them. A counter wraps around after
// about 10^5 joules: read it every few minutes. `folder` is for tests.
OpenedEnergyMeter open_cpu_energy(const std::string& folder = "/sys/class/powercap");

}  // namespace lockstep::core
