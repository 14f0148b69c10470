// The work of a stage for one microbatch, in pieces: kernels, and the collectives between them. A model and the way
// that it is split give a recipe (workload/recipe.h); split_stages() puts it in place of each whole F, B, I and W.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

struct Piece {
  // forward, backward, input_gradient, weight_gradient or recompute: a kernel; layer_collective: a collective.
  Op op = Op::forward;
  std::int32_t part = -1;               // of the stage: a layer, or what a unit or a bucket needs to tell apart
  std::int64_t amount = 0;              // as Task::amount
  Comm comm = Comm::none;               // of a collective
  GroupKind group = GroupKind::tensor;  // of a collective
  // A collective that the next piece does not wait for, only the one after that (Megatron's asynchronous all-reduce of
  // an input's gradient beside the weight's gradient). A kernel waits for the collective right before it otherwise.
  bool beside_next = false;
  std::uint32_t what = 0;     // which of the part's pieces, in the numbers of whoever makes and runs the recipe
  std::int64_t issue_ps = 0;  // as Task::issue_ps
};

struct StageRecipe {
  std::vector<Piece> forward = {};
  std::vector<Piece> backward = {};  // full, recomputation in it
  std::vector<Piece> input_gradient = {};
  std::vector<Piece> weight_gradient = {};
};

}  // namespace lockstep::schedules
