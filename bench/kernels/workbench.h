// Runs instances one after the other and reuses threads, memory, inputs and checks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/kernels/instance.h"
#include "bench/kernels/neighbours.h"
#include "bench/kernels/operand_sets.h"
#include "bench/kernels/timed_device.h"

namespace lockstep::kernel_bench {

struct WorkbenchOptions {
  std::string device = "cpu";
  std::uint64_t seed = 1;
  bool check = true;
  double cold_bytes = 0;  // size of the operands through which cold calls rotate
  std::string gemm;       // as BenchFlags::gemm
  std::string attention;  // as BenchFlags::attention
  std::chrono::seconds timeout{60};
};

// Returns whether a reference in f64 takes at most about a second.
bool is_checkable(const kernels::KernelCase& one);

class Workbench {
 public:
  explicit Workbench(const WorkbenchOptions& options);

  // Makes the instance ready: inputs, operands, and a check of the case's result if it has not been checked yet. Calls
  // it once.
  void prepare(Instance& instance);
  // Returns the mean time of this many calls of the prepared instance.
  double us_of_call(std::int64_t calls);
  void end(Instance& instance);  // records the cores and the implementation on which it ran

 private:
  void enter_device(const Instance& instance);
  void take_case(const kernels::KernelCase& one);
  void take_operands(const Instance& instance);

  WorkbenchOptions options_;
  std::unique_ptr<core::Device> device_;
  Arena arena_;
  std::unique_ptr<TimedDevice> timed_;
  Setting timed_setting_;
  std::string timed_by_;
  const kernels::KernelCase* case_ = nullptr;
  Patterns patterns_;
  std::string case_errors_;
  const Instance* prepared_ = nullptr;
  std::optional<OperandSets> sets_;
  std::unique_ptr<Neighbours> neighbours_;  // last, so that they end first
};

}  // namespace lockstep::kernel_bench
