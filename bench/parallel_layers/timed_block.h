// The passes of one layer on one rank, however its ranks share it, for RankRun to time and check.
#pragma once

#include <array>
#include <vector>

#include "bench/parallel_layers/nodes.h"
#include "bench/parallel_layers/pass.h"
#include "bench/parallel_layers/shape.h"

namespace lockstep::layer_bench {

class TimedBlock {
 public:
  TimedBlock() = default;
  virtual ~TimedBlock() = default;
  TimedBlock(const TimedBlock&) = delete;
  TimedBlock& operator=(const TimedBlock&) = delete;

  // Spoils what passes write, and puts gradients, which are added to, at zero.
  virtual void reset() = 0;
  virtual std::vector<Result> results() const = 0;  // of a forward and a backward

  const Pass& pass(Direction direction) const { return passes_[static_cast<std::size_t>(direction)]; }

 protected:
  Pass& of(Direction direction) { return passes_[static_cast<std::size_t>(direction)]; }

 private:
  std::array<Pass, 2> passes_;  // by direction
};

}  // namespace lockstep::layer_bench
