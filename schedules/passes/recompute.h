// Activations that are not kept but made again before they are needed (Chen et al. 2016, arXiv:1604.06174; of parts of
// a layer only: Korthikanti et al. 2022, arXiv:2205.05198).
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/passes/recipe.h"

namespace lockstep::schedules {

struct Recomputation {
  // Which pieces of the forward run again. The empty function: none; all of a layer's: full; some: selective.
  std::function<bool(const Piece&)> again = {};
  // So many parts are recomputed together, from the input of the first of them, when the backward comes to the last.
  // Only their first input is kept in between.
  std::int32_t parts_together = 1;
  std::int32_t first_part = 0;  // where groups begin, behind an embedding, say; parts before it are not repeated
};

// The recipe with its pieces to repeat in the backward and in the input's gradient: kernels as RECOMPUTE, collectives
// as they are, in the forward's order, right before the first piece of the last of the parts that are recomputed
// together. The weight's gradient takes what the input's has recomputed. Pieces without a part are not repeated.
StageRecipe with_recomputation(const StageRecipe& recipe, const Recomputation& what);

}  // namespace lockstep::schedules
