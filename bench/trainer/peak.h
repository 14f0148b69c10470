// The peak FLOP/s of these cores: the denominator of MFU.
#pragma once

#include <chrono>
#include <functional>
#include <span>

#include "core/dtype.h"

namespace lockstep::mini_train {

// FLOP/s of products of square matrices with 128 to 1024 rows on `threads` threads: the best of all runs. Small
// products fit into quiet moments of a shared machine; large ones have less overhead.
double measured_peak_flops(core::DType dtype, int threads);

// The same for products with 2048 to 8192 rows on a CUDA device. Operands are zeros, with which a GPU draws the least
// power and keeps its highest clock.
double measured_cuda_peak_flops(core::DType dtype, int device);

// A repeatable piece of work whose peak rate is measured.
struct TimedWork {
  double flops = 0;
  std::function<double()> run_s;  // runs it once and returns seconds
};

// Returns the highest rate of any run. Each work runs at least `runs` times, and for its share of the span.
double best_flops_a_s(std::span<const TimedWork> works, int runs, std::chrono::nanoseconds span);

}  // namespace lockstep::mini_train
