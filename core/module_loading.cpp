#include "core/module_loading.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "core/error.h"
#include "core/open_library.h"

namespace lockstep::core {

std::optional<int> gpus_before_cuda(const std::string& library) {
  unsigned int gpus = 0;
  try {
    const OpenedLibrary nvml("NVML", Failure::cuda, std::array{library.c_str()});
    const auto count = nvml.find<int(unsigned int*)>("nvmlDeviceGetCount_v2");
    const auto shutdown = nvml.find<int()>("nvmlShutdown");
    if (nvml.find<int()>("nvmlInit_v2")() != 0) return std::nullopt;
    const int result = count(&gpus);
    shutdown();
    if (result != 0) return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe): before any rank
  if (visible == nullptr) return static_cast<int>(gpus);
  const std::string listed = visible;
  const auto commas = std::count(listed.begin(), listed.end(), ',');
  return std::min(static_cast<int>(gpus), listed.empty() ? 0 : static_cast<int>(commas) + 1);
}

void choose_module_loading(int ranks, int gpus) {
  if (ranks > gpus) return;
  setenv("CUDA_MODULE_LOADING", "LAZY", 0);  // NOLINT(concurrency-mt-unsafe): before any rank
}

}  // namespace lockstep::core
