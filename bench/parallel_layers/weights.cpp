#include "bench/parallel_layers/weights.h"

#include <cmath>
#include <utility>

#include "bench/parallel_layers/values.h"

namespace lockstep::layer_bench {
namespace {

// Products are about as large as what goes in.
workload::Parameter matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs, workload::Split split,
                           std::int32_t blocks) {
  return {.name = name + ".weight",
          .shape = {outputs, inputs},
          .split = split,
          .blocks = blocks,
          .deviation = 1 / std::sqrt(static_cast<float>(inputs))};
}

workload::Parameter vector(const std::string& name, std::int64_t outputs, workload::Split split, std::int32_t blocks) {
  const bool is_shared_out = split == workload::Split::rows;
  return {.name = name + ".bias",
          .shape = {outputs},
          .split = is_shared_out ? split : workload::Split::none,
          .blocks = is_shared_out ? blocks : 1,
          .deviation = 1};
}

}  // namespace

LinearShare::LinearShare(const Place& place, std::string name, std::int64_t outputs, std::int64_t inputs,
                         workload::Split split, std::int32_t blocks)
    : memory_(place.workspace.memory),
      of_weight_(matrix(name, outputs, inputs, split, blocks)),
      of_bias_(vector(name, outputs, split, blocks)),
      adds_bias_(split == workload::Split::rows || place.sharing.index == 0),
      weight_(place.random(of_weight_)),
      bias_(place.random(of_bias_)),
      d_weight_(memory_.make(parallel::MemoryKind::gradients, core::DType::f32, weight_.elems())),
      d_bias_(memory_.make(parallel::MemoryKind::gradients, core::DType::f32, bias_.elems())) {}

void LinearShare::reset() const {
  set_bytes(memory_, d_weight_, 0);
  set_bytes(memory_, d_bias_, 0);
}

void LinearShare::add_results(std::vector<Result>& results) const {
  results.push_back({of_weight_, &d_weight_});
  results.push_back({of_bias_, &d_bias_});
}

}  // namespace lockstep::layer_bench
