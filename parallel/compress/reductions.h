// Constructors of the compressed all-reduces: see workload/compression.h.
#pragma once

#include "parallel/compress/compress.h"

namespace lockstep::parallel {

backends::Prepared prepare_bf16(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                const kernels::Context& where);
backends::Prepared prepare_codes(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                 const kernels::Context& where);
backends::Prepared prepare_sparse(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                  const kernels::Context& where);
backends::Prepared prepare_random(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                  const kernels::Context& where);
backends::Prepared prepare_low_rank(const GradientReduction& reduction, const PrepareCollective& prepare,
                                    Memory& memory, const kernels::Context& where);

}  // namespace lockstep::parallel
