// Names, results and units: NVML API Reference Guide (nvml.h).
#include "core/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace lockstep::core {
namespace {

constexpr int kMultiprocessorClock = 1;  // NVML_CLOCK_SM
constexpr int kMemoryClock = 2;          // NVML_CLOCK_MEM

// Throws where the library lacks it: an old driver's.
template <class Function>
void look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) throw Error(Failure::cuda, fmt::format("NVML has no {}", name));
}

NvmlCalls calls_of(void* library) {
  NvmlCalls calls{};
  look_up(library, "nvmlInit_v2", calls.init);
  look_up(library, "nvmlShutdown", calls.shutdown);
  look_up(library, "nvmlErrorString", calls.error_string);
  look_up(library, "nvmlDeviceGetHandleByPciBusId_v2", calls.device_by_pci_id);
  look_up(library, "nvmlDeviceGetTotalEnergyConsumption", calls.total_energy);
  look_up(library, "nvmlDeviceGetPowerUsage", calls.power);
  look_up(library, "nvmlDeviceGetClockInfo", calls.clock);
  return calls;
}

void check(const NvmlCalls& calls, int result, const char* call, const std::string& pci_id) {
  if (result == 0) return;
  throw Error(Failure::cuda, fmt::format("{} failed for the GPU at {}: {}", call, pci_id, calls.error_string(result)));
}

}  // namespace

GpuMeter::GpuMeter(NvmlCalls calls, std::shared_ptr<void> library, const std::string& pci_id)
    : library_(std::move(library)), calls_(calls) {
  check(calls_, calls_.init(), "nvmlInit", pci_id);
  const int result = calls_.device_by_pci_id(pci_id.c_str(), &device_);
  if (result != 0) calls_.shutdown();
  check(calls_, result, "nvmlDeviceGetHandleByPciBusId", pci_id);
  start_joules_ = energy_since_driver_joules();
}

GpuMeter::~GpuMeter() {
  calls_.shutdown();  // counted by NVML: other meters stay
}

std::optional<double> GpuMeter::energy_since_driver_joules() const {
  unsigned long long millijoules = 0;
  if (calls_.total_energy(device_, &millijoules) != 0) return std::nullopt;
  return 1e-3 * static_cast<double>(millijoules);
}

std::optional<double> GpuMeter::energy_joules() const {
  const auto now = energy_since_driver_joules();
  if (!now || !start_joules_) return std::nullopt;
  return *now - *start_joules_;
}

std::optional<double> GpuMeter::power_watts() const {
  unsigned int milliwatts = 0;
  if (calls_.power(device_, &milliwatts) != 0) return std::nullopt;
  return 1e-3 * milliwatts;
}

std::optional<double> GpuMeter::multiprocessor_clock_mhz() const {
  return clock_mhz(kMultiprocessorClock);
}

std::optional<double> GpuMeter::memory_clock_mhz() const {
  return clock_mhz(kMemoryClock);
}

std::optional<double> GpuMeter::clock_mhz(int domain) const {
  unsigned int mhz = 0;
  if (calls_.clock(device_, domain, &mhz) != 0) return std::nullopt;
  return mhz;
}

OpenedMeter open_gpu_meter(const std::string& pci_id, const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {nullptr, fmt::format("no NVML: {}", dlerror())};
  const std::shared_ptr<void> opened(handle, [](void* its) { dlclose(its); });
  try {
    return {std::make_unique<GpuMeter>(calls_of(handle), opened, pci_id), ""};
  } catch (const Error& error) {
    return {nullptr, fmt::format("no NVML: {}", error.what())};
  }
}

}  // namespace lockstep::core
