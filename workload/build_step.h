// Builds, from a model and a layout, the one Step that all ranks run, and the contents of each stage. Every interpreter
// takes this Step: the simulator with prices, the trainer with functions for its pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/passes/passes.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::workload {

// A stage's operations in execution order: the recipe with which schedules/passes replaces the whole F, B, I and W of a
// schedule.

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

// Chooses what a layout leaves open: the number of layers of each stage (layers=balanced), and the lengths of the token
// slices of a microbatch (slicing=balanced).

// Returns the layout with layers_of and slice_tokens chosen, if it asks for that and fits `model`; otherwise unchanged,
// so that why_invalid() can give the reason.
//
// Layers: of all ways to cut embedding, layers and head into consecutive stages with at least one of these each, one
// whose slowest stage, forward and backward, takes least at these prices of its kernels; among those the most even one.
// (The stage with the head of a large vocabulary has fewer layers than others, or none.) If ranks have several stages,
// stages are balanced, not ranks. Memory, communication and the optimizer are ignored.
//
// Slices: equal times in a layer, forward and backward, at these prices (schedules::balanced_slices()).
Layout balanced(const Model& model, const Layout& layout, const KernelPrice& price);

// Price of a kernel without a machine description, in an arbitrary unit: computed from its declared FLOPs and bytes,
// for a device that does 16 FLOPs per byte of memory traffic.
std::int64_t declared_price(const KernelCall& call);

// The work of K-FAC on the matrices of a transformer layer (Martens, Grosse 2015, arXiv:1503.05671), as kernels that a
// machine prices: PipeFisher runs it in bubbles (Osawa et al. 2023, arXiv:2211.14133). The trainer does not run it.

// Work for a rank's part of one matrix [outputs, inputs].
struct SecondOrderWork {
  OperationKind product = OperationKind::none;
  KernelCall input_curvature;   // per microbatch: x' x, [inputs, inputs] in f32 of x in the compute dtype
  KernelCall output_curvature;  // per microbatch: dy' dy, [outputs, outputs]
  KernelCall input_inversion;   // once per refresh: Cholesky and the inverse from it, n^3 FLOPs in f32
  KernelCall output_inversion;
  KernelCall precondition;  // in every step: inverse x gradient x inverse, f32
};

// For each product with weights of a layer, in forward order. Curvature counts as whole products, although one half of
// a symmetric matrix determines the other.
std::vector<SecondOrderWork> second_order_work(const Model& model, const Layout& layout);

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

// The norm of the gradients, unless buckets are updated individually, and the update of `elems` parameters.
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
// The step of all ranks: its rank r is rank r of the layout (workload/layout.h).
schedules::Step unfolded(const schedules::Step& step, const Layout& layout);

}  // namespace lockstep::workload
