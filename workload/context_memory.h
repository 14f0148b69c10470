// Tensors that each piece of attention on context-parallel ranks makes and reads (parallel/context), from its list
// (context_list.h). A tensor lives from the phase that makes it to the last one that uses it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "workload/context_layer.h"
#include "workload/operations.h"

namespace lockstep::workload {

struct ContextTouch {
  std::int32_t tensor = 0;  // unique within a layer and microbatch
  bool makes = false;
  std::int64_t bytes = 0;
};
using ContextPhase = std::vector<ContextTouch>;

class ContextMemory {
 public:
  // For forms that keep no scores in memory.
  explicit ContextMemory(const ContextLayer& layer);

  // Phases of split_heads, exchange_context, core, merge_context and projection; the projection's forward frees tensors
  // that need not be kept, and its gradients begin the backward.
  const std::vector<ContextPhase>& phases(PieceName piece) const;

 private:
  std::map<std::uint32_t, std::vector<ContextPhase>> phases_;  // by what_of()
};

// Most bytes that attention on these ranks holds in its backward, in addition to queries, keys, values, outputs and
// their sums of its own tokens. For colossal: an upper bound.
std::int64_t context_moving_bytes(const Model& model, const Layout& layout);

}  // namespace lockstep::workload
