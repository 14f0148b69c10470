// The power that a GPU draws, and its clocks, from NVIDIA's management library, which comes with the driver and is
// opened at run time: programs neither link nor need it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::core {

// The library's functions that we call, as nvml.h declares them: a result of 0 is success, a device is an opaque
// pointer. Those after device_by_pci_id are nullptr where a driver has none.
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

// One GPU's readings. An answer that the GPU does not give is nothing. One thread at a time.
class GpuMeter {
 public:
  // Counts from the beginning of this. Keeps what `calls` points into, such as the opened library. Throws Error(cuda)
  // that names the call and the GPU where NVML fails.
  GpuMeter(NvmlCalls calls, std::shared_ptr<void> library, const std::string& pci_id);
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;

  // The whole GPU's, whoever uses it, since this was made. Counted by the GPU in steps of some milliseconds.
  std::optional<double> energy_joules() const;
  std::optional<double> power_watts() const;
  std::optional<double> multiprocessor_clock_mhz() const;
  std::optional<double> memory_clock_mhz() const;
  std::optional<double> temperature_c() const;
  // Why clocks are below their highest right now: "power cap", "software thermal", ... An idle GPU says "idle".
  std::optional<std::vector<std::string>> clock_limits() const;
  std::optional<double> power_limit_watts() const;  // that is in force
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
  std::unique_ptr<GpuMeter> meter;  // nullptr: there is none
  std::string why_absent;           // one line
};

// The readings of the GPU at this address ("0000:1b:00.0", as CudaDeviceInfo has it). `library`: for tests.
OpenedMeter open_gpu_meter(const std::string& pci_id, const std::string& library = "libnvidia-ml.so.1");

}  // namespace lockstep::core
