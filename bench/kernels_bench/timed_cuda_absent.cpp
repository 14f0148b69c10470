// Replaces timed_cuda.cpp in builds without CUDA.
#include "bench/kernels_bench/roofline.h"
#include "bench/kernels_bench/timed_device.h"
#include "core/error.h"

namespace lockstep::kernel_bench {

namespace {

[[noreturn]] void not_built() {
  throw core::Error(core::Failure::not_built, std::string("--device cuda: ") + LOCKSTEP_WHY_CUDA);
}

}  // namespace

std::unique_ptr<TimedDevice> make_timed_cuda(core::Device& /*device*/, const std::string& /*timing*/,
                                             const CudaChoices& /*choices*/) {
  not_built();
}

Ceilings measure_cuda_ceilings(core::Device& /*device*/) {
  not_built();
}

}  // namespace lockstep::kernel_bench
