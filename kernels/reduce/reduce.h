// The sum (product, maximum, minimum, average) of k buffers in one pass, written to one or several destinations: what a
// collective computes. One source and one destination make it a copy.
//
// Cost: (k - 1) * count operations; bytes = (k + number of destinations) * count * element size.
// Narrow floats (f16, bf16, fp8) are summed in float and rounded once a pass; the average divides by average_over once,
// after the sum, in float (double for f64; integers truncate, as C does).
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace lockstep::kernels {

struct ReduceArgs {
  core::DType dtype;
  core::ReduceOp op;
  std::span<void* const> destinations;   // each `count` elements; a destination may be equal to a source
  std::span<const void* const> sources;  // each `count` elements; at least one; may be unaligned to anything
  std::int64_t count;                    // elements
  int average_over = 0;                  // > 0: divide the result by this many
  bool bypass_cache = false;             // store past the caches: for results that nobody reads soon
};

// Uses the best instruction set of the machine (Highway's run-time dispatch: SSE2 baseline, AVX2, AVX-512).
void reduce(const ReduceArgs& args);

// The obvious loop; for tests.
void reduce_reference(const ReduceArgs& args);

}  // namespace lockstep::kernels
