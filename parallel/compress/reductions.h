// The compressed all-reduces: see compress.h.
#pragma once

#include "parallel/compress/compress.h"

namespace lockstep::parallel {

backends::Prepared prepare_bf16(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                const kernels::Context& where);
backends::Prepared prepare_int8(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                const kernels::Context& where);

}  // namespace lockstep::parallel
