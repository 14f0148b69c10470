// Copies of a kernel that run beside the one that is timed, as other ranks do on the cores of one machine.
#pragma once

#include <atomic>
#include <exception>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "bench/kernels/operand_sets.h"
#include "bench/kernels/roofline.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernel_bench {

class Neighbours {
 public:
  // setting.copies - 1 of them, on the CPU, each with setting.threads cores and operands of its own; `cold_bytes` and
  // `gemm` as the timed one has (WorkbenchOptions). They run again and again from here on until this goes. Throws what
  // a first call throws.
  Neighbours(const kernels::KernelCase& one, const Patterns& patterns, const Setting& setting, double cold_bytes,
             const std::string& gemm);

  // A copy has stopped, so that the timed one has run without it.
  bool has_failed() const { return has_failed_; }

 private:
  std::atomic<bool> has_failed_ = false;
  std::latch started_;
  std::vector<std::exception_ptr> failures_;  // of each copy's first call
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::kernel_bench
