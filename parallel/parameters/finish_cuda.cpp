#include "core/device.h"
#include "kernels/base/cuda_context.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::parallel {

void finish(const kernels::Context& where) {
  if (!where.on_cpu()) where.cuda().queue().synchronize();
}

}  // namespace lockstep::parallel
