// A stage's operations in execution order: the recipe with which schedules/passes replaces the whole F, B, I and W of a
// schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/passes/split_stages.h"
#include "workload/kernel_call.h"
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

// Chooses what a layout leaves open: the number of layers of each stage (layers=balanced), and the lengths of the token
// slices of a microbatch (slicing=balanced).

// Returns the layout with layers_of and slice_tokens chosen, if it asks for that and fits `model`; otherwise unchanged,
// so that why_invalid() can say why.
//
// Layers: of all ways to cut embedding, layers and head into consecutive stages with at least one of them each, one
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

// Work for one matrix [outputs, inputs], for a rank's part of it.
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

}  // namespace lockstep::workload
