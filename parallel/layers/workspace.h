// Resources of a layer: the rank's memory and the context of its kernels.
#pragma once

#include "kernels/base/context.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

struct Workspace {
  Memory& memory;
  const kernels::Context& where;
};

}  // namespace lockstep::parallel
