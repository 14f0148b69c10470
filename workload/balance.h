// Chooses what a layout leaves open: the number of layers of each stage (layers=balanced), and the lengths of the token
// slices of a microbatch (slicing=balanced).
#pragma once

#include <cstdint>

#include "workload/layout.h"
#include "workload/model.h"
#include "workload/recipe.h"

namespace lockstep::workload {

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

}  // namespace lockstep::workload
