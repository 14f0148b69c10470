// Makes the Steps that all ranks run, and the content of each stage, from a model and a layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "workload/buckets.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::trainer {

struct TrainStep {
  schedules::Step step;                     // on all ranks
  schedules::Step forward;                  // on all ranks: forwards only, for validation and sampling
  std::vector<workload::StagePlan> stages;  // [stage of the pipeline]
  workload::Layout layout;                  // covers the ranks that step together: all, or those of one replica
};

// Throws a usage Error that names the field, its value and valid values if the layout does not fit the model or this
// trainer lacks a feature that it needs.
void check_layout(const workload::Model& model, const workload::Layout& layout);

// Returns why this trainer cannot run a valid schedule, with alternatives; empty if it can.
std::string untrainable(const schedules::Schedule& schedule);

// The layout must have been checked.
TrainStep make_train_step(const workload::Model& model, const workload::Layout& layout);
// The step if each data-parallel rank is a replica that steps independently: gradients are not reduced between them,
// and the norm is the replica's own. Not for schedules of two pipes.
TrainStep make_replicated_step(const workload::Model& model, const workload::Layout& layout);

// A rank's position among those that step together; `layout` covers all ranks. A server's rank, which comes after them,
// has the position, and so the parameters, of the first.
workload::Coordinates place_in_step(const TrainStep& made, const workload::Layout& layout, std::int32_t rank);

// The stages of a rank at a position in the pipeline, ascending.
std::vector<std::int32_t> stages_of(const TrainStep& made, std::int32_t pipeline_place);

}  // namespace lockstep::trainer
