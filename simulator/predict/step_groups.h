// The groups of a step, and where each lies in the machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"
#include "simulator/layout/groups.h"
#include "simulator/layout/layout.h"
#include "simulator/machine/machine.h"
#include "simulator/model/model.h"

namespace lockstep::simulator {

// Kinds of groups that repeat at every place of the pipeline, as layouts call them.
struct RepeatedGroup {
  schedules::GroupKind kind;
  Group of_layout;
};
std::span<const RepeatedGroup> repeated_groups();

struct StepGroups {
  std::vector<schedules::Group> groups;
  // Of each group: for each level of the machine, how many of its true members one switch joins.
  std::vector<std::vector<std::int64_t>> members;
};

// For a step with one rank for each place in the pipeline: that of tensor, context and data place 0.
// `copies`: the groups of ranks that hold the same stages (schedules/step/groups.h).
StepGroups groups_of_pipeline(const Model& model, const Layout& layout, const Machine& machine,
                              const std::vector<schedules::Group>& copies);

// The step of one pipeline made the step of all ranks: rank r of it is rank r of the machine. Each message goes to the
// same tensor, context and data place; groups get all their members.
struct WholeStep {
  schedules::Step step;
  StepGroups groups;
};
WholeStep unfold(const schedules::Step& pipeline, const Layout& layout, const Machine& machine);

}  // namespace lockstep::simulator
