// Recipes with fewer pieces and the same time.
#pragma once

#include "schedules/passes/recipe.h"
#include "simulator/prices/collective_price.h"

namespace lockstep::simulator {

// For searches over many layouts: a layer becomes one kernel. Collectives add their time to the kernel before them,
// those `beside_next` extend the next kernel, and consecutive kernels of one part become one. Exact if the members of
// such a group do equal work, except that a collective beside the next action's kernel counts in full.
schedules::StageRecipe fold_pieces(const schedules::StageRecipe& recipe, const CollectivePrice& price,
                                   double taken = 0);

// Consecutive kernels of one part become one piece, unless a collective overlaps the first of them. The step takes
// exactly as long, with a quarter of the events.
schedules::StageRecipe merge_kernels(const schedules::StageRecipe& recipe);

}  // namespace lockstep::simulator
