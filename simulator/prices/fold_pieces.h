// Recipes with fewer pieces that take as long.
#pragma once

#include "schedules/passes/recipe.h"
#include "simulator/prices/collective_price.h"

namespace lockstep::simulator {

// For where many layouts are tried: a layer is one kernel. Collectives become time of the kernel before them, those
// `beside_next` run out the next kernel, and kernels of one part that follow each other become one. Exact where the
// members of such a group do alike, but for a collective beside the next action's kernel, which counts in full here.
schedules::StageRecipe fold_pieces(const schedules::StageRecipe& recipe, const CollectivePrice& price,
                                   double taken = 0);

// Kernels of one part in a row become one piece, but where a collective runs beside the first of them. The step takes
// exactly as long, with a quarter of the events.
schedules::StageRecipe merge_kernels(const schedules::StageRecipe& recipe);

}  // namespace lockstep::simulator
