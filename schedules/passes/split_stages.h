// The pass that replaces the work of a stage by its pieces, and the recipe that names them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// The work of a stage for one microbatch as a list of pieces: kernels and the collectives between them. A model and its
// layout determine a recipe (workload/recipe.h); split_stages() replaces each whole F, B, I and W by it.

struct Piece {
  // forward, backward, input_gradient, weight_gradient or recompute: a kernel; layer_collective: a collective.
  Op op = Op::forward;
  std::int32_t part = -1;               // part of the stage: a layer, or whatever units and buckets distinguish
  std::int64_t amount = 0;              // as Task::amount
  Comm comm = Comm::none;               // for collectives
  GroupKind group = GroupKind::tensor;  // for collectives
  // A collective that overlaps the next piece: only the piece after the next waits for it (Megatron's asynchronous
  // all-reduce of an input gradient beside the weight gradient). Otherwise the next kernel waits.
  bool beside_next = false;
  std::uint32_t what = 0;     // which of the part's pieces; numbered by the maker of the recipe for its worker
  std::int64_t issue_ps = 0;  // as Task::issue_ps
};

struct StageRecipe {
  std::vector<Piece> forward = {};
  std::vector<Piece> backward = {};  // full backward, recomputation included
  std::vector<Piece> input_gradient = {};
  std::vector<Piece> weight_gradient = {};
};

// Replaces whole actions by pieces: the kernels of a stage and the collectives between them.

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
