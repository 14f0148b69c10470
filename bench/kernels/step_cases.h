// The kernels of a training step as cases, with the step's shapes and dtypes.
#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"
#include "workload/kernel_call.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::kernel_bench {

// Each kernel once, in the order of a step: those of the stages' layers, embedding and head, and the optimizer's. Work
// that other frameworks launch but this library has no kernel for is left out. The layout must fit the model
// (why_invalid()).
std::vector<kernels::KernelCase> cases_of_step(const workload::Model& model, const workload::Layout& layout);

}  // namespace lockstep::kernel_bench
