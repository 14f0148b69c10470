#include "kernels/base/cuda_context.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::parallel {

core::Stream* queue_of(const kernels::Context& where) {
  return where.on_cpu() ? nullptr : &where.cuda().queue();
}

}  // namespace lockstep::parallel
