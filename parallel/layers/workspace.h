// The resources of a layer: the rank's memory, and where its kernels run.
#pragma once

#include "kernels/base/context.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

struct Workspace {
  Memory& memory;
  const kernels::Context& where;
};

}  // namespace lockstep::parallel
