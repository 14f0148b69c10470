// Gradients of a norm's gamma and beta. They come out of the kernel that makes the input's gradient. Where weight
// gradients are pieces of their own, which alone may touch the store (a reduction may be under way while inputs'
// gradients are made), they are held until then.
#pragma once

#include <cstddef>

#include "parallel/layers/norm.h"
#include "parallel/memory/memory.h"
#include "schedules/schedule.h"
#include "trainer/model/part_run.h"

namespace lockstep::trainer {

class HeldNormGradients {
 public:
  // Where the kernel adds: the store's, or, for op input_gradient, zeros to be held. `gamma`: parameter; beta follows.
  parallel::NormGradients where(const StageContext& stage, PartGradients& into, schedules::Op op, std::size_t gamma);
  // Adds what is held, if anything is.
  void release(const StageContext& stage, PartGradients& into, std::size_t gamma);

 private:
  parallel::Tensor held_;  // gamma's, then beta's
};

}  // namespace lockstep::trainer
