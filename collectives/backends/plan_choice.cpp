#include "collectives/backends/plan_choice.h"

#include <algorithm>

#include "collectives/algorithms/algorithm.h"

namespace lockstep::backends {

plan::Plan plan_for(const collectives::Operation& operation, int num_ranks, std::string_view algorithm) {
  constexpr std::int64_t kMostChunks = 32;
  algorithms::Choice choice = algorithms::parse_choice(operation.kind, algorithm);
  const std::string label = choice.label();
  const auto chunks = choice.options.find("chunks");
  if (chunks != choice.options.end() && algorithm.find("chunks=") == std::string_view::npos) {
    const std::int64_t bytes = operation.count * static_cast<std::int64_t>(core::size_of(operation.dtype));
    chunks->second = static_cast<int>(std::clamp<std::int64_t>(bytes / kChunkBytes, 1, kMostChunks));
  }
  plan::Plan plan = algorithms::make_plan(choice, num_ranks, operation.root);
  plan.algorithm = label;
  return plan;
}

}  // namespace lockstep::backends
