// State of delayed scaling of 8-bit floats for the layers of a stage: the largest element of each encoded tensor in the
// previous training steps, and so far in this one, over its microbatches. Scales come from the largest of the last
// fp8_history steps (the Transformer Engine's recipe DelayedScaling with amax_compute_algo "max"; its history has
// 1,024).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "parallel/layers/fp8.h"
#include "parallel/layers/workspace.h"
#include "workload/layout.h"

namespace lockstep::trainer {

class Fp8History {
 public:
  Fp8History(const workload::Layout& layout, std::int64_t parts, const parallel::Workspace& workspace);

  parallel::Fp8Scaling of_part(std::int64_t part) const;
  // Called in the order of the kernels. After a step that does not train, its maxima are discarded.
  void end_step(bool trained, const parallel::Workspace& workspace);

  // The previous steps, for a checkpoint: [numbers, steps], the latest step last; empty without delayed scaling.
  std::vector<float> steps(const parallel::Workspace& workspace) const;
  void set_steps(std::span<const float> steps, const parallel::Workspace& workspace);

 private:
  void find_previous(const kernels::Context& where) const;

  std::optional<kernels::Fp8Recipe> recipe_;
  std::int64_t numbers_;  // parts x linear layers x kFp8Tensors
  std::int64_t length_;   // steps
  // f32; empty without delayed scaling.
  parallel::Tensor history_;   // [numbers, steps]
  parallel::Tensor previous_;  // [numbers], the largest of each row
  parallel::Tensor raised_;    // [numbers], of this step
  parallel::Tensor shifted_;   // [numbers, steps - 1], of end_step()
  // Other outputs of encoding the history.
  parallel::Tensor scales_;  // [numbers]
  parallel::Tensor codes_;   // [numbers, steps]
};

}  // namespace lockstep::trainer
