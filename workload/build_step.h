// Builds, from a model and a layout, the one Step that all ranks run, and the contents of each stage. Every interpreter
// takes this Step: the simulator with prices, the trainer with functions for its pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/passes/offload.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "workload/buckets.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/recipe.h"

namespace lockstep::workload {

// How kernels are priced, for users of times; without prices a task's amount is 0.
struct Pricing {
  KernelPrice kernel = {};
  IssueTimes issue = {};
  // Time in ps to copy these bytes from a storage location to the device and back to it concurrently. Only for layouts
  // with offloading.
  std::function<std::int64_t(Offload place, double to_device, double from_device)> copy = {};
  // Time in ps in which the host reads and writes this many bytes of its memory. Only for delayed updates.
  std::function<std::int64_t(double bytes)> host = {};
  // Replaces a stage's recipe by one with fewer pieces, if that suffices.
  std::function<schedules::StageRecipe(const schedules::StageRecipe&)> simplify = {};
};

// The part of the model in each stage of the schedule.
std::vector<StagePlan> plans_of(const Model& model, const Layout& layout, const schedules::Schedule& schedule);

// The work of one stage for a microbatch.
struct StageWork {
  schedules::StageRecipe recipe;
  std::int64_t message_bytes = 0;  // bytes of the stage's output on one rank; its gradient has the same size
  std::int64_t optimizer_ps = 0;   // one update of the parameters that a rank updates (its shards under ZeRO)
  std::int64_t host_ps = 0;        // the delayed part, on the host during the next step
  std::vector<schedules::CopyCosts> copies = {};  // copies of each part's activations, if the layout offloads them
  std::vector<std::int64_t> update_ps = {};       // the share of each bucket, with Update::per_bucket
  std::int64_t kept_bytes = 0;                    // bytes of activations, if the schedule evicts them to other ranks
};
// For each stage of the schedule, and for each slice of each stage (schedules::work_index()); equal ones are computed
// once.
std::vector<StageWork> works_of(const Model& model, const Layout& layout, const schedules::Schedule& schedule,
                                const Pricing& pricing = {});
StageWork work_of(const Model& model, const Layout& layout, const StageSlice& slice, const Pricing& pricing = {});

// The norm of the gradients, unless buckets are updated one by one, and the update of `elems` parameters by AdamW.
std::vector<KernelCall> optimizer_calls(const Layout& layout, double elems);

// One rank for each position in the pipeline; groups name it, and the actual number of their members. `works` must be
// made with the same pricing.
schedules::Step build_step(const Model& model, const Layout& layout, const schedules::Schedule& schedule,
                           const std::vector<StagePlan>& plans, const std::vector<StageWork>& works,
                           const Pricing& pricing = {});
// Only forwards, for validation and sampling.
schedules::Step build_forward(const Model& model, const Layout& layout, const schedules::Schedule& schedule,
                              const std::vector<StagePlan>& plans, const std::vector<StageWork>& works,
                              const Pricing& pricing = {});
// The step of all ranks: its rank r is rank r of the layout (workload/groups.h).
schedules::Step unfolded(const schedules::Step& step, const Layout& layout);

}  // namespace lockstep::workload
