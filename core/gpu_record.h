// The part of records about the GPUs of a run: how they are set, which software runs them, what holds their clocks
// back. Where there is no NVML its answers are left out.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/device_cuda.h"
#include "core/nvml.h"
#include "core/record.h"

namespace lockstep::core {

// `ranks_per_gpu`: the most.
GpuRecord gpu_record(const std::vector<CudaDeviceInfo>& gpus, int ranks_per_gpu);

// "cuda" (the runtime), "cuda_driver" (the newest CUDA that the driver runs), "nvidia_driver" ("580.82.07").
std::map<std::string, std::string> gpu_libraries(const std::vector<CudaDeviceInfo>& gpus);

// Looks at GPUs right after each measurement; tells nothing where there is no NVML.
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
