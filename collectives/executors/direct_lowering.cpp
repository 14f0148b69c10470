#include "collectives/executors/direct_lowering.h"

#include <algorithm>
#include <string>

#include "collectives/plan/check.h"
#include "collectives/plan/lower.h"
#include "core/error.h"

namespace lockstep::executors {
namespace {

using plan::LowerOptions;
using plan::Plan;
using plan::Program;

std::int64_t longest_block(const collectives::Operation& operation) {
  if (operation.matrix == nullptr) return operation.count;
  return *std::max_element(operation.matrix->counts.begin(), operation.matrix->counts.end());
}

// Blocks of an all_to_all_v without elements need no step: not even the latency of an empty message. The plans of its
// algorithms send each block straight to its destination, in one lane.
Plan without_empty_blocks(Plan plan, const collectives::CountMatrix& counts) {
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

// Returns a plan that gives the right result when input and output overlap.
Plan made_fit_for_in_place(const Plan& plan) {
  if (plan::check(plan, {.capacity = plan::kUnbounded, .in_place = true}).ok()) return plan;
  return plan::stage_input(plan);
}

}  // namespace

Program lower_for_direct(const Plan& plan, const collectives::Operation& operation, const DirectOptions& options) {
  const Plan whole = operation.in_place ? made_fit_for_in_place(plan) : plan;
  const Plan base = operation.matrix != nullptr ? without_empty_blocks(whole, *operation.matrix) : whole;
  const std::int64_t block_bytes = longest_block(operation) * static_cast<std::int64_t>(core::size_of(operation.dtype));
  const std::int64_t chunk_bytes = block_bytes / plan.chunks_per_block;
  constexpr std::int64_t kMostSegments = 64;
  const auto segments =
      static_cast<int>(std::clamp<std::int64_t>(chunk_bytes / options.segment_bytes, 1, kMostSegments));

  if (chunk_bytes >= options.stage_below_bytes) {
    for (const LowerOptions& lowering : {LowerOptions{segments, true, true}, LowerOptions{segments, true, false},
                                         LowerOptions{segments, false, false}}) {
      Program program = plan::lower(base, operation, lowering);
      if (!plan::find_deadlock(program)) return program;
    }
  }
  const Plan staged = plan::stage_sends(base);
  for (const bool fuse : {true, false}) {
    Program program = plan::lower(staged, operation, {segments, fuse, false});
    if (!plan::find_deadlock(program)) return program;
  }
  throw core::Error(core::Failure::internal, "no lowering of plan '" + plan.algorithm + "' runs to its end: " +
                                                 *plan::find_deadlock(plan::lower(staged, operation, {})));
}

}  // namespace lockstep::executors
