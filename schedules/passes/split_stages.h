// Puts pieces in place of whole actions: the kernels of a stage, and the collectives between them.
#pragma once

#include <span>

#include "schedules/passes/recipe.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// `recipes`: one for each stage of the step, or for each slice of each stage (work_index()). Every F, B, I and W
// becomes the pieces that its stage's recipe has for it; an empty list leaves it whole. Kernels follow each other in
// lane compute, collectives in lane tensor.
//
// A collective starts when the kernel before it has ended. The next kernel waits for it, be it of the same action or
// not; of a collective `beside_next` only the piece after the next one waits. Whoever waited for the whole action waits
// for its last kernel and its last collective.
//
// Throws a usage Error if a rank is in no group of the kind that a collective names.
void split_stages(Step& step, std::span<const StageRecipe> recipes);

}  // namespace lockstep::schedules
