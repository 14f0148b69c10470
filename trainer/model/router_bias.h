// Loss-free balancing of a mixture's experts (Wang et al. 2024, arXiv:2408.15664, algorithm 1; DeepSeek-V3,
// arXiv:2412.19437, section 2.1.2): a bias added to the scores for the choice of experts, which each step raises for
// experts with fewer tokens than the mean and lowers for those with more. Tokens of all ranks count, so that all ranks
// with a layer have the same bias.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/view.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"
#include "workload/model.h"

namespace lockstep::trainer {

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
