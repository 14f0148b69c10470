// What a layout leaves to be chosen: how many layers each stage has (layers=balanced), and how long the token slices of
// a microbatch are (slicing=balanced).
#pragma once

#include <cstdint>

#include "workload/layout.h"
#include "workload/model.h"
#include "workload/recipe.h"

namespace lockstep::workload {

// The layout with layers_of and slice_tokens chosen, where it asks for that and `model` can be laid out so; else as it
// is, for misfit_of() to say why.
//
// Layers: of all ways to cut embedding, layers and head into neighbouring stages with one of them at least, one whose
// longest stage takes least, forward and backward, at these prices of its kernels; among those the most even one. (A
// stage of a large vocabulary's head has fewer layers than others, or none.) Where a rank has several stages, they are
// what is balanced. Memory, exchanges and the optimizer do not count.
//
// Slices: of equal time in a layer, forward and backward, at these prices (schedules::balanced_slices()).
Layout balanced(const Model& model, const Layout& layout, const KernelPrice& price);

// The time of a kernel where no machine is at hand, in an arbitrary unit: of its declared FLOPs and bytes, on a device
// that does 16 FLOPs while a byte comes from memory, or goes there.
std::int64_t declared_price(const KernelCall& call);

}  // namespace lockstep::workload
