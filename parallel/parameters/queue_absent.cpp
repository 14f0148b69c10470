// In a build without CUDA kernels run on the CPU and are synchronous.
#include "core/error.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::parallel {

core::Stream* queue_of(const kernels::Context& where) {
  LOCKSTEP_CHECK(where.on_cpu(), "a CUDA context in a build without CUDA");
  return nullptr;
}

}  // namespace lockstep::parallel
