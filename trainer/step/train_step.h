// From a model and a layout to the Steps that all ranks run, and what each stage of them has.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"
#include "workload/buckets.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::trainer {

struct TrainStep {
  schedules::Step step;                     // of all ranks
  schedules::Step forward;                  // of all ranks: forwards only, for validation and sampling
  std::vector<workload::StagePlan> stages;  // [stage of the pipeline]
};

// Throws a usage Error that names the field, its value, and which values would do, if the model cannot be laid out so,
// or if this trainer does not have what they ask for.
void check_layout(const workload::Model& model, const workload::Layout& layout);

// The layout has been checked.
TrainStep make_train_step(const workload::Model& model, const workload::Layout& layout);

// The stages that a rank has, ascending.
std::vector<std::int32_t> stages_of(const TrainStep& made, const workload::Layout& layout, std::int32_t rank);

}  // namespace lockstep::trainer
