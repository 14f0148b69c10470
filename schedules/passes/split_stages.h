// Replaces whole actions by pieces: the kernels of a stage and the collectives between them.
#pragma once

#include <span>

#include "schedules/passes/recipe.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// `recipes`: one for each stage of the step, or for each slice of each stage (work_index()). Every F, B, I and W
// becomes the pieces of its stage's recipe; an empty list leaves it whole. Kernels go to lane compute, collectives to
// lane tensor.
//
// A collective starts when the kernel before it has ended. The next kernel, of the same action or not, waits for it; if
// it is `beside_next`, only the piece after the next one waits. Tasks that waited for the whole action wait for its
// last kernel and its last collective.
//
// Throws a usage Error if a rank has no group of a collective's kind.
void split_stages(Step& step, std::span<const StageRecipe> recipes);

}  // namespace lockstep::schedules
