// The parts of a stage (embedding, layers, head), and the tensors of each on one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/layout/layout.h"
#include "simulator/model/model.h"

namespace lockstep::simulator {

struct TensorParameters {
  std::int32_t part = 0;
  std::int64_t elements = 0;
  bool expert = false;  // its gradient is reduced over the ranks that have the same experts
};

// In the order of the forward: the first to be used first. Matrices are cut by tensor ranks, experts by expert ranks;
// norms and what is added after a sum are whole on every rank.
std::vector<TensorParameters> tensors_of(const Model& model, const Layout& layout, const StageSlice& slice);
std::int32_t num_parts(const StageSlice& slice);

// Ranks over which ZeRO or FSDP spreads what it shards.
double shard_count(const Layout& layout, bool expert);

}  // namespace lockstep::simulator
