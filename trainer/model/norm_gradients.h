// Gradients of a norm's gamma and beta. They come out of the kernel that makes the input's gradient. Where weight
// gradients are pieces of their own, which alone may touch the store (a reduction may be under way while inputs'
// gradients are made), they are held until then.
#pragma once

#include "parallel/layers/norm.h"
#include "parallel/memory/memory.h"
#include "schedules/schedule.h"
#include "trainer/model/part_run.h"
#include "workload/parameters.h"

namespace lockstep::trainer {

class HeldNormGradients {
 public:
  // Where the kernel adds: the store's, or, for op input_gradient, zeros to be held.
  parallel::NormGradients where(const StageContext& stage, PartGradients& into, schedules::Op op,
                                workload::WeightPlace norm);
  // Adds what is held, if anything is.
  void release(const StageContext& stage, PartGradients& into, workload::WeightPlace norm);

 private:
  parallel::Tensor held_;  // gamma's, then beta's if there is one
};

}  // namespace lockstep::trainer
