// The bytes of its operands that a kernel touches.
#pragma once

#include "kernels/base/kernel_case.h"

namespace lockstep::kernel_bench {

// If a kernel declares fewer bytes than its operands have, it touches only a part of the largest of them: the rows of a
// table that tokens name, or a third of each row of a fused query-key-value activation. Returns the maximum number of
// bytes touched per operand, such that their sum is the declared number.
double most_touched_bytes(const kernels::KernelCase& one);

// Bytes of all operands, once each, as far as they are touched.
double footprint_bytes(const kernels::KernelCase& one);

// True if an operand's elements are integers that name rows of another operand.
bool names_rows(const kernels::Draw& draw);
// True if integers of the case determine which rows of its largest operand are touched, so that other integers touch
// other rows.
bool names_rows(const kernels::KernelCase& one);

}  // namespace lockstep::kernel_bench
