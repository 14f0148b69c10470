// Copies of a kernel that run concurrently with the timed one, as other ranks do on the cores of one machine.
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
  // Starts setting.copies - 1 copies on the CPU, each with setting.threads cores and its own operands; `cold_bytes` and
  // `gemm` are those of the timed kernel (WorkbenchOptions). They run repeatedly until this is destroyed. Throws if a
  // copy's first call throws.
  Neighbours(const kernels::KernelCase& one, const Patterns& patterns, const Setting& setting, double cold_bytes,
             const std::string& gemm);

  // True if a copy has stopped, so that the timed kernel has run without it.
  bool has_failed() const { return has_failed_; }

 private:
  std::atomic<bool> has_failed_ = false;
  std::latch started_;
  std::vector<std::exception_ptr> failures_;  // from each copy's first call
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::kernel_bench
