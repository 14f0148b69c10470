#include "collectives/backends/plan_choice.h"

#include <algorithm>
#include <utility>

#include "collectives/algorithms/algorithm.h"

namespace lockstep::backends {
namespace {

// Blocks of an all_to_all_v that have no elements need no message. The plans of its algorithms send each block straight
// to its destination, in steps that no other lane waits for.
plan::Plan without_empty_blocks(plan::Plan plan, const collectives::CountMatrix& counts) {
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    for (plan::Lane& lane : plan.ranks[static_cast<std::size_t>(rank)].lanes) {
      std::erase_if(lane, [&](const plan::Step& step) {
        const int from = plan::reads_peer(step.op) ? step.peer : rank;
        const int to = step.op == plan::Op::send ? step.peer : rank;
        return counts.at(from, to) == 0;
      });
    }
  }
  return plan;
}

}  // namespace

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
  if (operation.matrix != nullptr) return without_empty_blocks(std::move(plan), *operation.matrix);
  return plan;
}

}  // namespace lockstep::backends
