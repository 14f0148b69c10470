// The part of records about a run's GPUs: their settings, their software, and what limits their clocks. Without NVML
// the fields that it would fill are left out.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/device_cuda.h"
#include "core/nvml.h"
#include "core/record_types.h"

namespace lockstep::core {

// `ranks_per_gpu` is the maximum over the GPUs.
GpuRecord gpu_record(const std::vector<CudaDeviceInfo>& gpus, int ranks_per_gpu);

// Versions of "cuda" (the runtime), "cuda_driver" (the newest CUDA that the driver supports), "nvidia_driver"
// ("580.82.07").
std::map<std::string, std::string> gpu_libraries(const std::vector<CudaDeviceInfo>& gpus);

// Reads the GPUs' state right after each measurement; returns nothing without NVML.
class GpuWatch {
 public:
  explicit GpuWatch(const std::vector<CudaDeviceInfo>& gpus);
  std::vector<GpuStateRecord> now() const;

 private:
  struct Watched {
    std::string pci_id;
    std::unique_ptr<GpuMeter> meter;
  };
  std::vector<Watched> watched_;
};

GpuStateRecord state_of(const std::string& pci_id, const GpuMeter& gpu);

}  // namespace lockstep::core
