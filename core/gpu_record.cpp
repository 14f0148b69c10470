#include "core/gpu_record.h"

#include <utility>

namespace lockstep::core {
namespace {

GpuDeviceRecord device_record(const CudaDeviceInfo& gpu) {
  GpuDeviceRecord record{.pci_id = gpu.pci_id, .power_limit_watts = {}, .mig = {}, .mps = gpu.shared_by_mps};
  const OpenedMeter opened = open_gpu_meter(gpu.pci_id);
  if (!opened.meter) return record;
  record.power_limit_watts = opened.meter->power_limit_watts();
  record.mig = opened.meter->is_partitioned();
  return record;
}

}  // namespace

GpuRecord gpu_record(const std::vector<CudaDeviceInfo>& gpus, int ranks_per_gpu) {
  GpuRecord record;
  record.gpus = static_cast<int>(gpus.size());
  record.ranks_per_gpu = ranks_per_gpu;
  record.label = ranks_per_gpu > 1 ? "shared GPU" : "a GPU a rank";
  if (!gpus.empty() && gpus.front().clock_mhz > 0) record.clock_mhz = gpus.front().clock_mhz;
  for (const CudaDeviceInfo& gpu : gpus) record.devices.push_back(device_record(gpu));
  return record;
}

std::map<std::string, std::string> gpu_libraries(const std::vector<CudaDeviceInfo>& gpus) {
  std::map<std::string, std::string> libraries;
  const CudaVersions cuda = cuda_versions();
  if (!cuda.runtime.empty()) libraries["cuda"] = cuda.runtime;
  if (!cuda.driver.empty()) libraries["cuda_driver"] = cuda.driver;
  if (gpus.empty()) return libraries;
  const OpenedMeter opened = open_gpu_meter(gpus.front().pci_id);
  if (!opened.meter) return libraries;
  if (const auto version = opened.meter->driver_version()) libraries["nvidia_driver"] = *version;
  return libraries;
}

GpuStateRecord state_of(const std::string& pci_id, const GpuMeter& gpu) {
  return {.pci_id = pci_id,
          .sm_mhz = gpu.multiprocessor_clock_mhz(),
          .memory_mhz = gpu.memory_clock_mhz(),
          .temperature_c = gpu.temperature_c(),
          .power_watts = gpu.power_watts(),
          .clock_limits = gpu.clock_limits()};
}

GpuWatch::GpuWatch(const std::vector<CudaDeviceInfo>& gpus) {
  for (const CudaDeviceInfo& gpu : gpus) {
    OpenedMeter opened = open_gpu_meter(gpu.pci_id);
    if (opened.meter) watched_.push_back({gpu.pci_id, std::move(opened.meter)});
  }
}

std::vector<GpuStateRecord> GpuWatch::now() const {
  std::vector<GpuStateRecord> states;
  for (const Watched& one : watched_) states.push_back(state_of(one.pci_id, *one.meter));
  return states;
}

}  // namespace lockstep::core
