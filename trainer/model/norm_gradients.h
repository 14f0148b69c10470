// Gradients of a norm's gamma and beta, which the kernel of the input gradient computes. If weight gradients are pieces
// of their own, only these may touch the store (a reduction may be in flight while input gradients are computed), so
// the gradients are held until then.
#pragma once

#include "parallel/layers/norm.h"
#include "parallel/memory/memory.h"
#include "schedules/schedule.h"
#include "trainer/model/part_run.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

class HeldNormGradients {
 public:
  // Destination of the kernel: the store, or, for op input_gradient, zeroed tensors to be held.
  parallel::NormGradients where(const StageContext& stage, PartGradients& into, schedules::Op op,
                                workload::WeightPlace norm);
  // Adds the held gradients to the store, if there are any.
  void release(const StageContext& stage, PartGradients& into, workload::WeightPlace norm);

 private:
  parallel::Tensor held_;  // gamma's, then beta's if there is one
};

}  // namespace lockstep::trainer
