// How much arithmetic a token takes, by convention, and which share of a machine's peak a training run makes of it.
#pragma once

#include <cstdint>

namespace lockstep::trainer {

struct FlopShape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;  // not padded
  std::int64_t length = 0;      // tokens a sequence
};

// N below: elements of the matrices that every token is multiplied by, 12 layers hidden^2 + vocabulary hidden. The word
// embedding counts once, as the head's matrix; positions, biases and norms do not count.
std::int64_t matrix_parameters(const FlopShape& shape);

// Forward and backward of a token: 6 N + 12 L H Q T (Chowdhery et al. 2022, arXiv:2204.02311, appendix B), where H Q,
// heads times their width, is `hidden`. Causal attention counts whole, recomputation does not count.
double flops_a_token(const FlopShape& shape);

// Model FLOPs utilisation, 0 to 1.
double model_flops_utilisation(const FlopShape& shape, double tokens_per_s, double peak_flops_per_s);

}  // namespace lockstep::trainer
