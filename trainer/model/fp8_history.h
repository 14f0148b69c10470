// What the layers of a stage remember for delayed scaling of 8-bit floats: the largest of each encoded tensor in the
// training steps before, and so far in this one, over their microbatches. Scales come from the largest of the last
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
  // In the order of the kernels. After a step that does not train, what it raised is forgotten.
  void end_step(bool trained, const parallel::Workspace& workspace);

  // The steps before, for a checkpoint: [numbers, steps], the last step's last; none without delayed scaling.
  std::vector<float> steps(const parallel::Workspace& workspace) const;
  void set_steps(std::span<const float> steps, const parallel::Workspace& workspace);

 private:
  void find_previous(const kernels::Context& where) const;

  std::optional<kernels::Fp8Recipe> recipe_;
  std::int64_t numbers_;  // parts x linear layers x kFp8Tensors
  std::int64_t length_;   // steps
  // f32; none without delayed scaling.
  parallel::Tensor history_;   // [numbers, steps]
  parallel::Tensor previous_;  // [numbers], the largest of each row
  parallel::Tensor raised_;    // [numbers], in this step
  parallel::Tensor shifted_;   // [numbers, steps - 1], of end_step()
  // What encoding the history makes besides its largest.
  parallel::Tensor scales_;  // [numbers]
  parallel::Tensor codes_;   // [numbers, steps]
};

}  // namespace lockstep::trainer
