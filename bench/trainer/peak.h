// The peak FLOP/s of these cores: the denominator of MFU.
#pragma once

#include <chrono>
#include <functional>
#include <span>

#include "core/dtype.h"

namespace lockstep::mini_train {

// FLOP/s of products of square matrices of 128 to 1024 rows on so many threads: the best of all runs. Small ones find a
// quiet moment on a machine that others use, large ones have less to do beside the product.
double measured_peak_flops(core::DType dtype, int threads);

// The same of products of 2048 to 8192 rows on a CUDA device. Operands are zeros, with which a GPU draws the least
// power and keeps its highest clock.
double measured_cuda_peak_flops(core::DType dtype, int device);

// The peak of a piece of work that can be repeated.
struct TimedWork {
  double flops = 0;
  std::function<double()> run_s;  // runs it once; seconds
};

// The highest rate of any run. Each work is run at least `runs` times, and for its share of the span.
double best_flops_a_s(std::span<const TimedWork> works, int runs, std::chrono::nanoseconds span);

}  // namespace lockstep::mini_train
