// For tests of passes: steps whose actions are split into pieces.
#pragma once

#include <vector>

#include "schedules/passes/split_stages.h"
#include "schedules/step/lower.h"

namespace lockstep::schedules {

// Per part a forward of 10 ps; input and weight gradients of 10 ps each, from the last part to the first.
inline StageRecipe recipe_of_parts(std::int32_t parts) {
  StageRecipe recipe;
  for (std::int32_t part = 0; part < parts; ++part) {
    const std::int32_t back = parts - 1 - part;
    recipe.forward.push_back({.op = Op::forward, .part = part, .amount = 10});
    recipe.backward.push_back({.op = Op::backward, .part = back, .amount = 20});
    recipe.input_gradient.push_back({.op = Op::input_gradient, .part = back, .amount = 10});
    recipe.weight_gradient.push_back({.op = Op::weight_gradient, .part = back, .amount = 10});
  }
  return recipe;
}

// Groups for two pipes in opposite directions: the outermost ranks, then those next to them, ...
inline void add_groups_of_ends(Step& step, GroupKind kind) {
  for (std::int32_t r = 0; r < step.num_ranks() / 2; ++r) step.groups.push_back({kind, {r, step.num_ranks() - 1 - r}});
}

// Each rank represents a data-parallel group of `data_ranks` ranks.
inline Step step_of_parts(const Schedule& schedule, std::int32_t parts, std::int64_t data_ranks) {
  Step step = lower(schedule, std::vector<StageCosts>(num_works(schedule), {.message_bytes = 1}));
  split_stages(step, std::vector<StageRecipe>(num_works(schedule), recipe_of_parts(parts)));
  for (std::int32_t r = 0; r < step.num_ranks(); ++r) step.groups.push_back({GroupKind::data, {r}, data_ranks});
  return step;
}

}  // namespace lockstep::schedules
