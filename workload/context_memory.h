// Which tensors each piece of context ranks' attention makes and reads (parallel/context), from the list of its way
// (context_list.h). A tensor begins with the phase that makes it and ends with the last that touches it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "workload/context_layer.h"
#include "workload/operations.h"

namespace lockstep::workload {

struct ContextTouch {
  std::int32_t tensor = 0;  // a number of its own in a layer and microbatch
  bool makes = false;
  std::int64_t bytes = 0;
};
using ContextPhase = std::vector<ContextTouch>;

class ContextMemory {
 public:
  // Ways whose scores stay on the chip.
  explicit ContextMemory(const ContextLayer& layer);

  // Of split_heads, exchange_context, core, merge_context and projection, whose forward gives up what nothing is kept
  // for, and whose gradients begin the backward.
  const std::vector<ContextPhase>& phases(PieceName piece) const;

 private:
  std::map<std::uint32_t, std::vector<ContextPhase>> phases_;  // by what_of()
};

// Bytes that attention of these ranks holds at most in its backward, beside queries, keys, values, outputs and their
// sums of own tokens. Colossal's: an upper bound.
std::int64_t context_moving_bytes(const Model& model, const Layout& layout);

}  // namespace lockstep::workload
