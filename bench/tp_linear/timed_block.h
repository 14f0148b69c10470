// The passes of one layer on one rank, for any split of the layer, which RankRun times and checks.
#pragma once

#include <array>
#include <vector>

#include "bench/tp_linear/nodes.h"
#include "bench/tp_linear/pass.h"
#include "bench/tp_linear/shape.h"

namespace lockstep::tp_linear {

class TimedBlock {
 public:
  TimedBlock() = default;
  virtual ~TimedBlock() = default;
  TimedBlock(const TimedBlock&) = delete;
  TimedBlock& operator=(const TimedBlock&) = delete;

  // Overwrites with NaN what passes write, and zeroes gradients, which are accumulated.
  virtual void reset() = 0;
  virtual std::vector<Result> results() const = 0;  // results of a forward and a backward

  const Pass& pass(Direction direction) const { return passes_[static_cast<std::size_t>(direction)]; }

 protected:
  Pass& of(Direction direction) { return passes_[static_cast<std::size_t>(direction)]; }

 private:
  std::array<Pass, 2> passes_;  // by direction
};

}  // namespace lockstep::tp_linear
