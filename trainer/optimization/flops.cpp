#include "trainer/optimization/flops.h"

namespace lockstep::trainer {

std::int64_t matrix_parameters(const FlopShape& shape) {
  return 12 * shape.layers * shape.hidden * shape.hidden + shape.vocabulary * shape.hidden;
}

double flops_a_token(const FlopShape& shape) {
  const std::int64_t attention = 12 * shape.layers * shape.hidden * shape.length;
  return static_cast<double>(6 * matrix_parameters(shape) + attention);
}

double model_flops_utilisation(const FlopShape& shape, double tokens_per_s, double peak_flops_per_s) {
  return flops_a_token(shape) * tokens_per_s / peak_flops_per_s;
}

}  // namespace lockstep::trainer
