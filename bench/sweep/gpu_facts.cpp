#include "bench/sweep/gpu_facts.h"

#include <string>

#include "collectives/libraries/nccl_library.h"

namespace lockstep::sweep {
namespace {

void add_version(RunFacts& facts, const std::string& library, const std::string& version) {
  if (!version.empty()) facts.libraries[library] = version;
}

}  // namespace

void add_gpu_facts(const std::vector<core::CudaDeviceInfo>& gpus, int ranks_per_gpu, RunFacts& facts) {
  for (const core::CudaDeviceInfo& gpu : gpus) facts.machine.gpus.push_back(gpu.name);
  core::GpuRecord record;
  record.gpus = static_cast<int>(gpus.size());
  record.ranks_per_gpu = ranks_per_gpu;
  record.label = ranks_per_gpu > 1 ? "shared GPU" : "a GPU a rank";
  if (!gpus.empty() && gpus.front().clock_mhz > 0) record.clock_mhz = gpus.front().clock_mhz;
  facts.gpu = record;
  const core::CudaVersions cuda = core::cuda_versions();
  add_version(facts, "cuda", cuda.runtime);
  add_version(facts, "cuda_driver", cuda.driver);
  if (facts.transport == "nccl") add_version(facts, "nccl", libraries::nccl_library_version());
}

}  // namespace lockstep::sweep
