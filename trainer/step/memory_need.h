// The memory that a rank will need, known before anything is allocated, so that a run that cannot fit is refused early.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/memory/memory.h"
#include "trainer/step/train_step.h"
#include "workload/layout.h"
#include "workload/memory_kinds.h"
#include "workload/model.h"

namespace lockstep::trainer {

// The share of the bytes that a layer keeps for a microbatch until its backward that a split backward still needs from
// I to W: the inputs of its four products and the gradients of their outputs. This is nearly all of them, because
// dropout masks and scores, which only I needs and which are a large part in Qi et al. 2023 (arXiv:2401.10241, table
// 1), are not kept here; it exceeds 1 with recomputation.
double kept_share_for_w(const workload::Model& model, const workload::Layout& layout);

// Memory in a step, exactly the bytes that a rank counts (workload/step_memory.h).
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
