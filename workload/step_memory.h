// The memory that a rank of the trainer holds in a training step, at its peak and by kind: byte for byte what it
// counts (parallel::Memory::held_by_tasks), from the Step's list of tasks and the lives of its tensors alone. Tasks
// that run beside others in other threads count at their place in the list.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"
#include "workload/buckets.h"
#include "workload/layout.h"
#include "workload/memory_kinds.h"
#include "workload/model.h"

namespace lockstep::workload {

// Numbers of the optimizer that lie on the device: kernels::AdamW's schedule for each update of a step, the factor of
// gradients, their norm.
constexpr std::int64_t step_numbers(std::int64_t updates) {
  return 3 * updates + 2;
}

// `plans`: of each stage (plans_of). `step`: of all ranks (unfolded). Without what compressed all-reduces hold.
HeldBytes held_in_step(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                       const schedules::Step& step, std::int32_t rank);
// The bytes that each task of a rank copies to or from the device (OFFLOAD and LOAD of activations; else 0), from the
// same arguments.
std::vector<std::int64_t> copied_bytes(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                                       const schedules::Step& step, std::int32_t rank);

}  // namespace lockstep::workload
