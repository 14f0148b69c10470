// Power, energy and clocks, of GPUs by NVML and of the CPU by its own counters.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::core {

// Power, energy and clocks of a GPU from NVML, NVIDIA's management library. It comes with the driver and is opened at
// run time: programs neither link nor need it.

// The functions of the library that we call, as nvml.h declares them: a result of 0 is success, a device is an opaque
// pointer. Those after device_by_pci_id are nullptr if a driver lacks them.
struct NvmlCalls {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int result);
  int (*device_by_pci_id)(const char* pci_id, void** device);
  int (*total_energy)(void* device, unsigned long long* millijoules);  // since the driver was loaded
  int (*power)(void* device, unsigned int* milliwatts);
  int (*clock)(void* device, int domain, unsigned int* mhz);
  int (*temperature)(void* device, int sensor, unsigned int* celsius);
  int (*throttle_reasons)(void* device, unsigned long long* bits);
  int (*power_limit)(void* device, unsigned int* milliwatts);
  int (*mig_mode)(void* device, unsigned int* present, unsigned int* pending);
  int (*driver_version)(char* text, unsigned int size);
};

// Readings of one GPU; nullopt if the GPU does not answer. For one thread at a time.
class GpuMeter {
 public:
  // Energy counts from here. Keeps the library that `calls` points into. Throws Error(cuda) with the call and the GPU
  // if NVML fails.
  GpuMeter(NvmlCalls calls, std::shared_ptr<void> library, const std::string& pci_id);
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;

  // Energy that the whole GPU drew, for any user, since this was made. The GPU updates it every few milliseconds.
  std::optional<double> energy_joules() const;
  std::optional<double> power_watts() const;
  std::optional<double> multiprocessor_clock_mhz() const;
  std::optional<double> memory_clock_mhz() const;
  std::optional<double> temperature_c() const;
  // Why clocks are below their maximum right now: "power cap", "software thermal", ... "idle" for an idle GPU.
  std::optional<std::vector<std::string>> clock_limits() const;
  std::optional<double> power_limit_watts() const;  // limit in force
  std::optional<bool> is_partitioned() const;       // MIG
  std::optional<std::string> driver_version() const;

 private:
  std::optional<double> energy_since_driver_joules() const;

  std::shared_ptr<void> library_;
  NvmlCalls calls_;
  void* device_ = nullptr;
  std::optional<double> start_joules_;
};

struct OpenedMeter {
  std::unique_ptr<GpuMeter> meter;  // nullptr if there is none
  std::string why_absent;           // one line
};

// Opens a meter for the GPU at this address ("0000:1b:00.0", as in CudaDeviceInfo). `library` is for tests.
OpenedMeter open_gpu_meter(const std::string& pci_id, const std::string& library = "libnvidia-ml.so.1");

// Energy in joules that a run's devices draw: GPUs by NVML, CPU packages by RAPL. For one thread at a time.
struct EnergyMeter {
  // Joules that the whole devices drew, for any user, since this was made; nullopt if a device could not be read. Empty
  // if there is no meter.
  std::function<std::optional<double>()> joules = nullptr;
  std::string source = {};      // "nvml" or "rapl"
  int devices = 0;              // number of GPUs or CPU packages that it counts
  std::string why_absent = {};  // one line; why there is no meter
};

EnergyMeter add_up_gpus(std::vector<std::unique_ptr<GpuMeter>> gpus);

// Opens a meter for the GPUs at these addresses; a GPU that several ranks share is counted once. `library` is for
// tests.
EnergyMeter open_gpu_energy(const std::vector<std::string>& pci_ids, const std::string& library = "libnvidia-ml.so.1");

// Opens a meter for all packages of this machine, cores and uncore, without memory modules: Linux's powercap zones
// "intel-rapl:N", which AMD's processors have, too. Since 2020 only root may read them. A counter wraps around after
// about 10^5 joules: read it every few minutes. `folder` is for tests.
EnergyMeter open_cpu_energy(const std::string& folder = "/sys/class/powercap");

}  // namespace lockstep::core
