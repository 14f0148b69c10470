// From a model and a layout to the step that ranks run.
#pragma once

#include <vector>

#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "simulator/layout/layout.h"
#include "simulator/machine/machine.h"
#include "simulator/model/recipes.h"
#include "simulator/predict/predict.h"
#include "simulator/predict/step_groups.h"

namespace lockstep::simulator {

struct PipelineStep {
  schedules::Step step;  // one rank for each place in the pipeline
  StepGroups groups;     // step.groups, and where they lie
};

// What a collective of each kind of group takes by formula, on the whole machine and with the group's true size.
CollectivePrice price_in(const Layout& layout, const Machine& machine);

// The work of each stage of a schedule; stages that are alike are worked out once.
std::vector<StageWork> stage_works(const Model& model, const Layout& layout, const Machine& machine,
                                   const schedules::Schedule& schedule, Detail detail);

PipelineStep build_step(const Model& model, const Layout& layout, const Machine& machine,
                        const schedules::Schedule& schedule, Detail detail);

}  // namespace lockstep::simulator
