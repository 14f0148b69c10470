// Predicts the memory that a rank of the trainer holds in a training step, at its peak and by kind: exactly the bytes
// that it counts (parallel::Memory::held_by_tasks), from only the Step's list of tasks and the lifetimes of tensors.
// Tasks that overlap with others in other threads count at their position in the list.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"
#include "workload/buckets.h"
#include "workload/layout.h"
#include "workload/memory_kinds.h"
#include "workload/model.h"

namespace lockstep::workload {

// Numbers of the optimizer in device memory: kernels::AdamW's schedule for each update of a step, the factor of
// gradients, their norm.
constexpr std::int64_t step_numbers(std::int64_t updates) {
  return 3 * updates + 2;
}

// `plans`: of each stage (plans_of). `step`: of all ranks (unfolded). Without the state of compressed all-reduces.
HeldBytes held_in_step(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                       const schedules::Step& step, std::int32_t rank);
// Bytes that each task of a rank copies to or from the device (OFFLOAD and LOAD of activations; otherwise 0), from the
// same arguments.
std::vector<std::int64_t> copied_bytes(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                                       const schedules::Step& step, std::int32_t rank);

}  // namespace lockstep::workload
