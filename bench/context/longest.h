// The longest sequence whose training step fits into a rank's memory, by the step model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/context/flags.h"

namespace lockstep::context_bench {

struct Longest {
  workload::ContextWay way = workload::ContextWay::ring;
  int ranks = 1;
  std::int64_t tokens = 0;  // a multiple of the number of chunks; 0: no sequence fits
};
// For --fit: for one rank, and for each way on each number of ranks.
std::vector<Longest> longest_sequences(const ContextFlags& flags);
std::string longest_text(const ContextFlags& flags, const std::vector<Longest>& all);

}  // namespace lockstep::context_bench
