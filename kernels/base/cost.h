// The declared cost of a kernel on any machine: the minimum work of any implementation.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/operands.h"

namespace lockstep::kernels {

// FLOPs: additions, subtractions, multiplications and divisions of floating point numbers, and one for each exp, log,
// tanh and square root, as the reference computes them (a fused multiply-add counts as two). Comparisons, conversions
// and integer operations do not count.
struct Cost {
  double flops = 0;
  double bytes = 0;          // between memory and caches if all caches are cold: each operand read or written once
  std::string bytes_reason;  // why bytes differ from the operands' sizes; empty if they do not
};

// Returns reads plus writes of every operand, once each.
template <class Args>
double operand_bytes(const Args& args) {
  double bytes = 0;
  for (const Operand& operand : operands_of(args)) {
    const double once = static_cast<double>(size_bytes(operand.dtype, operand.expected_elems));
    bytes += operand.access == Access::update ? 2 * once : once;
  }
  return bytes;
}

}  // namespace lockstep::kernels
