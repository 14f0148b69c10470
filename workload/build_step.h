// From a model and a layout to the one Step that all ranks run, and what each stage of it has. Every interpreter takes
// this Step: the simulator with prices, the trainer with functions for its pieces.
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

// How kernels are priced where somebody waits by the step; a task's amount is 0 without.
struct Pricing {
  KernelPrice kernel = {};
  IssueTimes issue = {};
  // The time to copy so many bytes to the device from a place and so many back to it, side by side, in picoseconds.
  // Only where a layout offloads.
  std::function<std::int64_t(Offload place, double to_device, double from_device)> copy = {};
  // The time in which the host reads and writes so many bytes of its memory, in picoseconds. Only where updates are
  // delayed.
  std::function<std::int64_t(double bytes)> host = {};
  // Puts a recipe of fewer pieces in place of a stage's, where that is enough.
  std::function<schedules::StageRecipe(const schedules::StageRecipe&)> simplify = {};
};

// The part of the model in each stage of the schedule.
std::vector<StagePlan> plans_of(const Model& model, const Layout& layout, const schedules::Schedule& schedule);

// The work of one stage for a microbatch.
struct StageWork {
  schedules::StageRecipe recipe;
  std::int64_t message_bytes = 0;                 // of the stage's output on one rank; its gradient has as many
  std::int64_t optimizer_ps = 0;                  // one update of what a rank updates (its shards under ZeRO)
  std::int64_t host_ps = 0;                       // the part that is delayed, on the host beside the next step
  std::vector<schedules::CopyCosts> copies = {};  // of each part's activations, where the layout offloads them
  std::vector<std::int64_t> update_ps = {};       // the part of each bucket in it, with Update::per_bucket
  std::int64_t kept_bytes = 0;                    // of activations, where the schedule evicts them to other ranks
};
// For each stage of the schedule, and of each stage for each slice (schedules::work_index()); those that are alike are
// worked out once.
std::vector<StageWork> works_of(const Model& model, const Layout& layout, const schedules::Schedule& schedule,
                                const Pricing& pricing = {});
StageWork work_of(const Model& model, const Layout& layout, const StageSlice& slice, const Pricing& pricing = {});

// The norm of the gradients, unless buckets are updated one by one, and the update of `elems` parameters by AdamW.
std::vector<KernelCall> optimizer_calls(const Layout& layout, double elems);

// One rank for each place in the pipeline; groups name it, and how many members they have in truth.
// `works`: made with the same pricing.
schedules::Step build_step(const Model& model, const Layout& layout, const schedules::Schedule& schedule,
                           const std::vector<StagePlan>& plans, const std::vector<StageWork>& works,
                           const Pricing& pricing = {});
// Forwards only, for validation and sampling.
schedules::Step build_forward(const Model& model, const Layout& layout, const schedules::Schedule& schedule,
                              const std::vector<StagePlan>& plans, const std::vector<StageWork>& works,
                              const Pricing& pricing = {});
// The step of all ranks: rank r of it is rank r of the layout (workload/groups.h).
schedules::Step unfolded(const schedules::Step& step, const Layout& layout);

}  // namespace lockstep::workload
