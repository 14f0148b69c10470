// From a model and a layout to the Steps that all ranks run, and what each stage of them has.
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
  schedules::Step step;                     // of all ranks
  schedules::Step forward;                  // of all ranks: forwards only, for validation and sampling
  std::vector<workload::StagePlan> stages;  // [stage of the pipeline]
  workload::Layout layout;                  // of the ranks that step together: all, or those of one replica
};

// Throws a usage Error that names the field, its value, and which values would do, if the model cannot be laid out so,
// or if this trainer does not have what they ask for.
void check_layout(const workload::Model& model, const workload::Layout& layout);

// Why this trainer cannot run a schedule that is right, with what it could; empty: it can.
std::string untrainable(const schedules::Schedule& schedule);

// The layout has been checked.
TrainStep make_train_step(const workload::Model& model, const workload::Layout& layout);
// The step of the same ranks where each data-parallel rank is a replica that steps by itself: no gradient is reduced
// between them, and the norm is the replica's own. Not for two pipes.
TrainStep make_replicated_step(const workload::Model& model, const workload::Layout& layout);

// A rank's place among those that step together; `layout` is that of all ranks. Of a server's rank behind them the
// first, whose parameters it has.
workload::Coordinates place_in_step(const TrainStep& made, const workload::Layout& layout, std::int32_t rank);

// The stages of a rank at a place of the pipeline, ascending.
std::vector<std::int32_t> stages_of(const TrainStep& made, std::int32_t pipeline_place);

}  // namespace lockstep::trainer
