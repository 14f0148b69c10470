#include "kernels/norm/norm.h"

namespace lockstep::kernels {

// FLOPs per row of C columns. LayerNorm: C additions and a division for the mean; 3 C and a division for the variance;
// an addition, a square root and a division for rstd; 4 C for y. RMSNorm: 2 C and a division for the mean square; 3 for
// rstd; 2 C for y. The residual adds C.
Cost cost_of(const NormForward& args) {
  const auto columns = static_cast<double>(args.columns);
  double row_flops = args.norm == Norm::layer ? 8 * columns + 5 : 4 * columns + 4;
  if (args.with_residual) row_flops += columns;
  return {static_cast<double>(args.rows) * row_flops, operand_bytes(args), ""};
}

// FLOPs per row of C columns. LayerNorm: 2 C for the normalised x, C for its gradient, 3 C and 2 divisions for the mean
// and slope of that gradient, 4 C for dx, 2 C for dgamma, C for dbeta. RMSNorm: C, C, 2 C and a division, 3 C, 2 C. The
// residual adds C.
Cost cost_of(const NormBackward& args) {
  const auto columns = static_cast<double>(args.columns);
  double row_flops = args.norm == Norm::layer ? 13 * columns + 2 : 9 * columns + 1;
  if (args.with_residual) row_flops += columns;
  return {static_cast<double>(args.rows) * row_flops, operand_bytes(args), ""};
}

}  // namespace lockstep::kernels
