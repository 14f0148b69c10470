// Cases of kernels as instances of a benchmark, and the workbench that times them.
#pragma once

#include <atomic>
#include <exception>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/kernels/operand_sets.h"
#include "bench/kernels/roofline.h"
#include "bench/kernels/timed_device.h"
#include "core/record.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernel_bench {

// One benchmark: a kernel's case run in one way, and its results.

// Times of one call by Google Benchmark, which calls with more and more iterations and reports the last calls.
struct Trial {
  std::vector<double> samples_us;  // each is the mean of a batch of calls
  std::int64_t iterations = 0;
};

struct Outcome {
  std::vector<Trial> trials;
  std::vector<int> cores;
  std::vector<core::GpuStateRecord> gpu_states;     // right after the last trial's samples, if there is NVML
  std::optional<core::GpuClocksRecord> gpu_clocks;  // the same of its clocks
  std::string implementation;                       // which of several implementations ran; empty if there is only one
  bool left_out = false;                            // because the time budget was over
  bool checked = false;
  std::string status = "ok";  // or "wrong", "failed"
  std::string error;
};

struct Instance {
  const kernels::KernelCase* one;
  Setting setting;
  std::string timing;  // "host", "events", "graph"
  Outcome outcome = {};

  // "layernorm_fwd/bf16/B8_T1024_C768/cpu/threads:2/cold", "gelu_fwd/f32/B8_T128_C1024/cuda/graph/warm"; with more than
  // one copy "gelu_fwd/f32/B8_T128_C1024/cpu/threads:1/copies:2/warm"
  std::string name() const {
    std::string how = setting.device == "cpu" ? "threads:" + std::to_string(setting.threads) : timing;
    if (setting.copies > 1) how += "/copies:" + std::to_string(setting.copies);
    return one->name() + "/" + setting.device + "/" + how + "/" + name_of(setting.cache);
  }
};

// Copies of a kernel that run concurrently with the timed one, as other ranks do on the cores of one machine.

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

// Runs instances one after the other and reuses threads, memory, inputs and checks.

struct WorkbenchOptions {
  std::string device = "cpu";
  std::uint64_t seed = 1;
  bool check = true;
  double cold_bytes = 0;  // size of the operands through which cold calls rotate
  std::string gemm;       // as BenchFlags::gemm
  CudaChoices choices;
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
