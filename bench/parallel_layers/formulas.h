// Bytes that tensor-parallel layers send, by formula (docs/metrics.md, "Tensor-parallel layers").
#pragma once

#include <cstdint>

#include "bench/parallel_layers/shape.h"

namespace lockstep::layer_bench {

// Sums, gathers and scatters of batch x length x hidden elements that a rank takes part in, in units of one gather or
// scatter: an all-reduce is two.
struct Transfers {
  int forward = 0;
  int backward = 0;
  int again = 0;  // of these, the backward's second gather of the input, with sequence parallelism
};
Transfers transfers_of(BlockKind kind, bool sequence_parallel);

// Bytes sent by all ranks together in a forward and a backward, by collectives that send the fewest bytes.
std::int64_t formula_bytes_of_all(BlockKind kind, const Shape& shape, const Sharing& sharing);

}  // namespace lockstep::layer_bench
