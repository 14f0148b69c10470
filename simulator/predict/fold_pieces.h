// A recipe with fewer pieces that takes as long: where many layouts are tried, a layer is one kernel.
#pragma once

#include "schedules/passes/recipe.h"
#include "simulator/model/recipes.h"

namespace lockstep::simulator {

// Collectives become time of the kernel before them, those `beside_next` run out the next kernel, and kernels of one
// part that follow each other become one. Exact where the members of such a group do alike, but for a collective beside
// the next action's kernel, which counts in full here.
schedules::StageRecipe fold_pieces(const schedules::StageRecipe& recipe, const CollectivePrice& price);

}  // namespace lockstep::simulator
