// Loss-free balance of a mixture's experts (Wang et al. 2024, arXiv:2408.15664, algorithm 1; DeepSeek-V3,
// arXiv:2412.19437, section 2.1.2): a bias on the scores, which decides who is chosen, and which each step raises for
// experts with fewer choices than the mean and lowers for those with more. Choices of all ranks count, so that ranks
// with the same layer have the same bias.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/view.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"
#include "workload/model.h"

namespace lockstep::trainer {

// For each part of a stage, of which only layers use theirs.
class RouterBias {
 public:
  RouterBias(const workload::Model& model, std::int64_t parts, const parallel::Workspace& workspace);

  kernels::In of_part(std::int64_t part) const;  // [experts] f32; none without the balance
  // Behind a step: the choices of each expert in it.
  void balance(std::int64_t part, std::span<const std::int64_t> loads, const parallel::Workspace& workspace);

  // For a checkpoint: [experts], or nothing without the balance.
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
