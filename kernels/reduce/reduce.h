// The sum (product, maximum, minimum, average) of k buffers in one pass, written to one or several destinations: the
// arithmetic of collectives. With one source and one destination it is a copy.
//
// Cost: (k - 1) * count operations; bytes = (k + number of destinations) * count * element size.
// Narrow floats (f16, bf16, fp8) are summed in float and rounded once per pass; the average divides once by
// average_over, after the sum, in float (double for f64; integers truncate, as in C).
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace lockstep::kernels {

struct ReduceArgs {
  core::DType dtype;
  core::ReduceOp op;
  std::span<void* const> destinations;   // each `count` elements; a destination may be equal to a source
  std::span<const void* const> sources;  // each `count` elements; at least one; any alignment
  std::int64_t count;                    // elements
  int average_over = 0;                  // > 0: divide the result by this many
  bool bypass_cache = false;             // use non-temporal stores, for results that are not read soon
};

// Uses the machine's best instruction set (Highway's run-time dispatch: SSE2 baseline, AVX2, AVX-512).
void reduce(const ReduceArgs& args);

}  // namespace lockstep::kernels
