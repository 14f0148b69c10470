// A stage's operations in the order in which they run: the recipe that schedules/passes put in place of the whole F, B,
// I and W of a schedule.
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/passes/recipe.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"

namespace lockstep::workload {

// The time of one of a kernel call's `count` calls, in picoseconds. An empty function: no times are needed.
using KernelPrice = std::function<std::int64_t(const KernelCall& call)>;

// The host's time to issue what a piece has, in picoseconds. All 0: the host is no limit.
struct IssueTimes {
  std::int64_t kernel_ps = 0;  // of each call of a kernel
  std::int64_t collective_ps = 0;
};

// Every kernel and every collective is a piece, whose `part` counts as StageSlice::num_parts() does and whose `what` is
// what_of() its name. Order of a full backward, as Megatron-LM's: an input's gradient is reduced over the tensor ranks
// while the weight's gradient is made, and with sequence parallelism what that needs is gathered again while the
// input's is made (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2).
schedules::StageRecipe recipe_of(const Model& model, const Layout& layout, const StageSlice& slice,
                                 const KernelPrice& price = {}, const IssueTimes& issue = {});

}  // namespace lockstep::workload
