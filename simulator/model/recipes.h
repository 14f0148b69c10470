// What a stage of a model does for one microbatch on one rank, priced by a machine: kernels in picoseconds, and the
// collectives between them. schedules/passes put it in place of the whole F, B, I and W of a schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/passes/recipe.h"
#include "schedules/step/lower.h"
#include "simulator/layout/layout.h"
#include "simulator/machine/machine.h"
#include "simulator/model/model.h"
#include "simulator/model/stage_parts.h"

namespace lockstep::simulator {

// Parameters of a part of a stage on one rank, before any is sharded over data-parallel ranks. Parts are numbered in
// the forward's order: the embedding if the stage has it, its layers, the head. They are what units (FSDP) gather.
struct PartParameters {
  std::int64_t dense = 0;   // gradients are reduced over data x context ranks
  std::int64_t expert = 0;  // over those that have the same experts
};

struct StageWork {
  schedules::StageRecipe recipe;  // `part` of each piece: index of `parts`
  std::vector<PartParameters> parts;
  std::vector<TensorParameters> tensors;  // what buckets are cut from
  std::int64_t message_bytes = 0;         // of the stage's output on one rank; its gradient has as many
  std::int64_t optimizer_ps = 0;          // one update of what this rank updates (its shard under ZeRO)
};
StageWork work_of(const Model& model, const Layout& layout, const DeviceSpec& device, const StageSlice& slice);

// What a collective of `bytes` takes in a group (payload as Task::amount).
using CollectivePrice =
    std::function<std::int64_t(schedules::Comm comm, schedules::GroupKind group, std::int64_t bytes)>;
// A recipe's totals, for simulation without its pieces: kernels and collectives one after the other, a collective
// beside a kernel as the longer of both. Input and weight gradient together are the full backward, which may take less
// than both alone as it hides more.
schedules::StageCosts totals_of(const StageWork& work, const CollectivePrice& price);

// The update of `parameters` by Adam: reads gradient, master copy and moments, writes all but the gradient and the
// 16-bit weights; and the norm of the gradients before.
std::int64_t optimizer_ps(const DeviceSpec& device, std::int64_t parameters, std::int32_t grad_bytes);

}  // namespace lockstep::simulator
