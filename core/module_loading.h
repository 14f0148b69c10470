// When CUDA loads a program's kernels: all of them as it starts, which takes seconds, or each at its first launch. A
// first launch may wait until the device is idle (CUDA Programming Guide, "Lazy Loading"). Where ranks share a GPU, it
// might wait forever: for a kernel that waits for the kernel of the rank that is loading.
#pragma once

#include <optional>
#include <string>

namespace lockstep::core {

// Number of GPUs that this process will see, as far as CUDA_VISIBLE_DEVICES lists them by commas. NVML counts them,
// because asking CUDA would start it. nullopt without NVML. `library` is for tests.
std::optional<int> gpus_before_cuda(const std::string& library = "libnvidia-ml.so.1");

// Lets CUDA load each kernel at its first launch if `ranks` ranks of this process need not share `gpus` GPUs. To be
// called before anything else of CUDA, by one thread; without a call, all kernels are loaded at the start
// (core/device_cuda.cpp). CUDA_MODULE_LOADING is kept if the user has set it.
void choose_module_loading(int ranks, int gpus);

}  // namespace lockstep::core
