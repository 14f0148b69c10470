// The results of a whole layer on one rank, in f32, and the positions of a rank's tokens in it.
#pragma once

#include <vector>

#include "parallel/context/context_attention.h"

namespace lockstep::context_bench {

inline constexpr std::uint64_t kSeed = 1;

// [batch, length, ...] each.
struct Whole {
  std::vector<float> qkv, d_o;  // random, and rounded to the dtype
  std::vector<float> o, d_qkv;  // computed from them
  double backward_us = 0;       // minimum time of one rank's kernels
  double forward_us = 0;
};
Whole reference_of(const parallel::ContextLayer& layer, int threads);

// Rows of the rank's tokens.
std::vector<float> rows_of(const parallel::ContextLayer& layer, const std::vector<float>& all);
// The largest difference of the rank's rows from the whole's, relative to the whole's largest element; NaN if there is
// one.
double difference(const parallel::ContextLayer& layer, const std::vector<float>& found, const std::vector<float>& all);
// Its bound: 1e-5 in f32; otherwise from the roundings to the dtype (parallel/context/context_attention.h).
double allowed_difference(const parallel::ContextLayer& layer);

}  // namespace lockstep::context_bench
