// A linear layer's weights on one rank, and their gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/parallel_layers/sides.h"
#include "parallel/layers/linear.h"
#include "parallel/memory/memory.h"
#include "workload/parameter.h"

namespace lockstep::layer_bench {

class LinearShare {
 public:
  // `columns`: a row-parallel layer, whose bias rank 0 alone adds; else column-parallel in so many blocks.
  LinearShare(const Place& place, std::string name, std::int64_t outputs, std::int64_t inputs, workload::Split split,
              std::int32_t blocks = 1);
  parallel::LinearWeights weights() const { return {weight_.in(), adds_bias_ ? bias_.in() : kernels::In{}}; }
  parallel::LinearGradients gradients() const { return {d_weight_.inout(), d_bias_.inout()}; }
  void reset() const;
  void add_results(std::vector<Result>& results) const;

 private:
  parallel::Memory& memory_;
  workload::Parameter of_weight_, of_bias_;
  bool adds_bias_;
  parallel::Tensor weight_, bias_, d_weight_, d_bias_;
};

}  // namespace lockstep::layer_bench
