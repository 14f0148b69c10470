// In place of cuda_place.cpp in a build without CUDA.
#include "bench/kernels/place.h"
#include "core/error.h"

namespace lockstep::kernel_bench {

std::unique_ptr<Place> make_cuda_place(core::Device& /*device*/, const std::string& /*timing*/) {
  throw core::Error(core::Failure::not_built, std::string("--device cuda: ") + LOCKSTEP_WHY_CUDA);
}

}  // namespace lockstep::kernel_bench
