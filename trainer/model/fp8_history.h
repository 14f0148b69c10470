// What the layers of a stage remember for delayed scaling of 8-bit floats: the largest of each encoded tensor, over the
// microbatches of the training step before and, so far, of this one. The history has one step (the Transformer Engine's
// amax_compute_algo "most_recent"). It is in no checkpoint: the first step after a resume scales by what it has.
#pragma once

#include <cstdint>

#include "parallel/layers/fp8.h"
#include "parallel/layers/workspace.h"
#include "workload/layout.h"

namespace lockstep::trainer {

class Fp8History {
 public:
  Fp8History(const workload::Layout& layout, std::int64_t parts, const parallel::Workspace& workspace);

  parallel::Fp8Scaling of_part(std::int64_t part) const;
  // In the order of the kernels. After a step that does not train, what it raised is forgotten.
  void end_step(bool trained, const parallel::Workspace& workspace);

 private:
  std::optional<kernels::Fp8Recipe> recipe_;
  parallel::Tensor previous_;  // [parts, linear layers, kFp8Tensors] f32; none without delayed scaling
  parallel::Tensor raised_;
};

}  // namespace lockstep::trainer
