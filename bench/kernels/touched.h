// The bytes of its operands that a kernel touches.
#pragma once

#include "kernels/base/kernel_case.h"

namespace lockstep::kernel_bench {

// Where a kernel declares less than its operands hold, it touches a part of the largest of them: the rows of a table
// that tokens name, or a third of each row of a fused query-key-value activation. This many bytes of each operand at
// most, so that their sum is what is declared.
double most_touched_bytes(const kernels::KernelCase& one);

// The bytes of all operands, once each, as far as they are touched.
double footprint_bytes(const kernels::KernelCase& one);

// Whether an operand's elements are integers that name rows of another operand.
bool names_rows(const kernels::Draw& draw);
// Whether integers of the case say which rows of its largest operand are touched, so that other integers lead to
// others.
bool names_rows(const kernels::KernelCase& one);

}  // namespace lockstep::kernel_bench
