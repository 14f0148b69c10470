#include "bench/sweep/gpu_facts.h"

#include <string>

#include "collectives/libraries/nccl_library.h"
#include "core/gpu_record.h"

namespace lockstep::sweep {
void add_gpu_facts(const std::vector<core::CudaDeviceInfo>& gpus, int ranks_per_gpu, RunFacts& facts) {
  for (const core::CudaDeviceInfo& gpu : gpus) facts.machine.gpus.push_back(gpu.name);
  facts.gpu_devices = gpus;
  facts.gpu = core::gpu_record(gpus, ranks_per_gpu);
  facts.libraries.merge(core::gpu_libraries(gpus));
  const std::string nccl = facts.transport == "nccl" ? libraries::nccl_library_version() : "";
  if (!nccl.empty()) facts.libraries["nccl"] = nccl;
}

}  // namespace lockstep::sweep
