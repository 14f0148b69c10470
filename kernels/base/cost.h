// The declared cost of a kernel, whatever machine runs it: the least that any implementation must do.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/operands.h"

namespace lockstep::kernels {

// FLOPs: additions, subtractions, multiplications and divisions of floating point numbers, and one for each exp, log,
// tanh and square root, as the reference does them (a fused multiply-add is two). Comparisons, conversions and integer
// work are not counted.
struct Cost {
  double flops = 0;
  double bytes = 0;  // between memory and the caches, if nothing is in a cache at the start: each operand read, written
  std::string bytes_reason;  // why bytes differ from the operands' sizes; empty if they do not
};

// Reads plus writes of every operand, once each.
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
