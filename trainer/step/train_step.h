// From a model and a layout to the one Step that all ranks run, and what each stage of it has.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"
#include "trainer/model/gpt_stage.h"
#include "trainer/step/train_layout.h"

namespace lockstep::trainer {

struct StagePlan {
  StagePlace place;
  std::vector<parallel::Parameter> parameters;
  // In the order in which their gradients are complete. Parameters of one bucket are reduced, and sharded, at once.
  std::vector<std::vector<std::size_t>> buckets;
};

struct TrainStep {
  schedules::Step step;           // of all ranks
  schedules::Step forward;        // of all ranks: forwards only, for validation and sampling
  std::vector<StagePlan> stages;  // [stage of the pipeline]
};

// `shape`: of tensor rank 0; its recompute and sequence parallelism are the layout's. The layout has been checked.
TrainStep make_train_step(const GptShape& shape, const TrainLayout& layout);

// The stages that a rank has, ascending.
std::vector<std::int32_t> stages_of(const TrainStep& made, const TrainLayout& layout, std::int32_t rank);

}  // namespace lockstep::trainer
