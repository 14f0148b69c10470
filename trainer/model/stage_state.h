// State of a stage beside weights: scaling history of 8-bit floats, biases of routers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/view.h"
#include "parallel/layers/linear.h"
#include "parallel/memory/memory.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::trainer {

// State of delayed scaling of 8-bit floats for the layers of a stage: the largest element of each encoded tensor in the
// previous training steps, and so far in this one, over its microbatches. Scales come from the largest of the last
// fp8_history steps (the Transformer Engine's recipe DelayedScaling with amax_compute_algo "max"; its history has
// 1,024).

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

// Loss-free balancing of a mixture's experts (Wang et al. 2024, arXiv:2408.15664, algorithm 1; DeepSeek-V3,
// arXiv:2412.19437, section 2.1.2): a bias added to the scores for the choice of experts, which each step raises for
// experts with fewer tokens than the mean and lowers for those with more. Tokens of all ranks count, so that all ranks
// with a layer have the same bias.

// Biases by part of a stage; only layers use theirs.
class RouterBias {
 public:
  RouterBias(const workload::Model& model, std::int64_t parts, const parallel::Workspace& workspace);

  kernels::In of_part(std::int64_t part) const;  // [experts] f32; empty without balancing
  // After a step: takes the tokens per expert in it.
  void balance(std::int64_t part, std::span<const std::int64_t> loads, const parallel::Workspace& workspace);

  // For a checkpoint: [experts], or empty without balancing.
  std::vector<float> values(std::int64_t part) const;
  void set_values(std::int64_t part, std::span<const float> values, const parallel::Workspace& workspace);

 private:
  void to_device(std::int64_t part, const parallel::Workspace& workspace) const;

  std::int64_t experts_;
  float rate_;
  std::vector<float> values_;  // [part][expert]
  parallel::Tensor on_device_;
};

}  // namespace lockstep::trainer
