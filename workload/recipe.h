// A stage's operations in execution order: the recipe with which schedules/passes replaces the whole F, B, I and W of a
// schedule.
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/passes/recipe.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"

namespace lockstep::workload {

// Time in ps of one of a kernel call's `count` calls. An empty function: no times are needed.
using KernelPrice = std::function<std::int64_t(const KernelCall& call)>;

// Host time in ps to issue a piece. All 0: the host is not a limit.
struct IssueTimes {
  std::int64_t kernel_ps = 0;  // per kernel call
  std::int64_t collective_ps = 0;
};

// Every kernel and every collective is a piece, whose `part` counts as in StageSlice::num_parts() and whose `what` is
// what_of() its name. A full backward has Megatron-LM's order: an input gradient is reduced over the tensor-parallel
// ranks while the weight gradient is computed, and with sequence parallelism the latter's operand is gathered again
// while the input gradient is computed (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2).
schedules::StageRecipe recipe_of(const Model& model, const Layout& layout, const StageSlice& slice,
                                 const KernelPrice& price = {}, const IssueTimes& issue = {});

}  // namespace lockstep::workload
