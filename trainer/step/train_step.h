// Makes the Steps that all ranks run, and the content of each stage, from a model and a layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/memory/memory.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "workload/layout.h"
#include "workload/memory_kinds.h"
#include "workload/model.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

struct TrainStep {
  schedules::Step step;                     // on all ranks
  schedules::Step forward;                  // on all ranks: forwards only, for validation and sampling
  std::vector<workload::StagePlan> stages;  // [stage of the pipeline]
  workload::Layout layout;                  // covers the ranks that step together: all, or one replica's
};

// Throws a usage Error that names the field, its value and valid values if the layout does not fit the model or this
// trainer lacks a feature that it needs.
void check_layout(const workload::Model& model, const workload::Layout& layout);

// The layout must have been checked.
TrainStep make_train_step(const workload::Model& model, const workload::Layout& layout);
// The step if each data-parallel rank is a replica that steps independently: gradients are not reduced between them,
// and the norm is the replica's own. Not for schedules of two pipes.
TrainStep make_replicated_step(const workload::Model& model, const workload::Layout& layout);

// The kernels and layer collectives of these kinds of operations of one slice, in a forward and backward of one
// microbatch on all ranks: neither are gradients reduced nor parameters updated. The layout has one pipeline stage.
schedules::Step make_part_step(const workload::Model& model, const workload::Layout& layout,
                               const workload::StageSlice& slice, std::span<const workload::OperationKind> kinds);

// A rank's position among those that step together; `layout` covers all ranks. A server's rank, which comes after them,
// has the position, and so the parameters, of the first.
workload::Coordinates place_in_step(const TrainStep& made, const workload::Layout& layout, std::int32_t rank);

// The stages of a rank at a position in the pipeline, ascending.
std::vector<std::int32_t> stages_of(const TrainStep& made, std::int32_t pipeline_place);

// The memory that a rank will need, known before anything is allocated, so that a run that cannot fit is refused early.

// The share of the bytes that a layer keeps for a microbatch until its backward that a split backward still needs from
// I to W: the inputs of its four products and the gradients of their outputs. This is nearly everything, because
// dropout masks and scores, which only I needs and which are a large part in Qi et al. 2023 (arXiv:2401.10241, table
// 1), are not kept here; it exceeds 1 with recomputation.
double kept_share_for_w(const workload::Model& model, const workload::Layout& layout);

// Memory in a step, exactly the bytes that a rank counts (workload/memory.h).
workload::HeldBytes memory_need(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                                std::int32_t rank);

// Memory of the rank that needs most, in bytes by kind.
parallel::BytesByKind most_needed(const TrainStep& made, const workload::Model& model, const workload::Layout& layout);

// Throws a usage Error that names the need, the available memory and remedies if the ranks of this host together need
// more than `available_bytes`.
void check_memory(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                  std::int64_t available_bytes);

struct GpuRoom {
  std::string name;                 // "cuda:0, NVIDIA H200"
  std::vector<std::int32_t> ranks;  // ranks that share it
  std::int64_t free_bytes = 0;
};
// The same for each of these GPUs.
void check_gpu_memory(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                      const std::vector<GpuRoom>& gpus);

}  // namespace lockstep::trainer
