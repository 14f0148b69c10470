// The product that each kernel's arguments describe, the same on every device.
#pragma once

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

Product product_of(const GemmForward& args);
Product product_of(const GemmInputGradient& args);
Product product_of(const GemmWeightGradient& args);  // the weights'; the bias's gradient is the sum of dy's rows
Product product_of(const GemmBatched& args);

// An array with dense rows.
Factor rows_of(const In& x, std::int64_t columns);

}  // namespace lockstep::kernels
