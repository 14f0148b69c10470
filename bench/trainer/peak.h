// What these cores can do at most: the denominator of MFU.
#pragma once

#include "core/dtype.h"

namespace lockstep::mini_train {

// FLOP/s of a product of square matrices with 1024 rows on so many threads: the best of several runs.
double measured_peak_flops(core::DType dtype, int threads);

}  // namespace lockstep::mini_train
