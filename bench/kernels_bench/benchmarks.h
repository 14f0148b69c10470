// Cases of kernels as instances of a benchmark, the workbench that times them, their registration with Google
// Benchmark, and their records and output.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/kernels_bench/flags.h"
#include "bench/kernels_bench/roofline.h"
#include "bench/kernels_bench/timed_device.h"
#include "core/device_cuda.h"
#include "core/provenance.h"
#include "core/record.h"
#include "kernels/base/kernel_case.h"
#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"

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
  bool checked = false;
  std::string status = "ok";  // or "wrong", "failed", "left_out": the time budget was over
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
  // Starts setting.copies - 1 copies on the CPU, each with setting.threads cores and its own operands, and with the
  // timed kernel's `cold_bytes` and `gemm` (WorkbenchOptions). They run repeatedly until this is destroyed. Throws if a
  // copy's first call throws.
  Neighbours(const kernels::KernelCase& kernel_case, const Patterns& patterns, const Setting& setting,
             double cold_bytes, const std::string& gemm);

  // True if a copy has stopped, so that the timed kernel has run without it.
  bool has_failed() const { return has_failed_; }

 private:
  std::atomic<bool> has_failed_ = false;
  std::latch started_;
  std::vector<std::exception_ptr> failures_;  // from each copy's first call
  std::vector<std::jthread> threads_;
};

// Runs instances sequentially and reuses threads, memory, inputs and checks.

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
bool is_checkable(const kernels::KernelCase& kernel_case);

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
  void take_case(const kernels::KernelCase& kernel_case);
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

// Registers instances as benchmarks of Google Benchmark.

// The device, and the peaks that instances are compared with; must outlive the benchmarks.
struct Bench {
  BenchFlags flags;
  core::Machine machine;
  std::vector<kernels::KernelCase> cases;
  std::deque<Instance> instances = {};  // a deque, because addresses must stay valid
  Ceilings ceilings = {};
  core::SteadyClocks::Look look = {};  // at the GPU's clocks
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  // Seconds that are left of --time-budget; nullopt without one.
  std::optional<double> seconds_left() const;
  // Bytes of operands to rotate through so that no cache of the device keeps any from call to call.
  double cold_bytes() const;
  std::optional<Bound> bound_of_instance(const Instance& instance) const {
    return bound_of(work_of(*instance.one), instance.setting, ceilings, machine.caches);
  }
};

// Makes an instance of every case for every number of threads, kind of timing and cache state that the flags ask for.
void make_instances(Bench& bench);

// Returns the instances that --benchmark_filter chooses.
std::vector<Instance*> chosen_instances(Bench& bench);

// Orders instances so that, wherever a budget ends, as many kernels as possible have been timed: one of each kernel,
// then the second of each, and so on. Of a kernel the first case comes first, and of a case the main way: most threads,
// cold. Returns the number of kernels.
std::size_t every_kernel_first(std::vector<Instance*>& instances);

// With a time budget, the remaining time is divided among the instances in this order, and those that would begin after
// its end are skipped, except one of each kernel.
void register_benchmarks(Bench& bench, Workbench& workbench);

// The kernels of a training step as cases, with the step's shapes and dtypes.

// Each kernel once, in the order of a step: in the stages' layers, embedding and head, then in the optimizer. Work
// that other frameworks launch but this library has no kernel for is omitted. The layout must fit the model
// (why_invalid()).
std::vector<kernels::KernelCase> cases_of_step(const workload::Model& model, const workload::Layout& layout);

// Records of a run (docs/record_format.md).

std::vector<core::CudaDeviceInfo> bench_gpus(const Bench& bench);  // that it uses: the first one, or none
core::RunRecord run_record(const Bench& bench);
core::CeilingRecord ceiling_record(const std::string& run, const Ceiling& ceiling);
// Makes the record of an instance from the samples of its last `repetitions` trials.
core::KernelRecord kernel_record(const std::string& run, const Bench& bench, const Instance& instance,
                                 std::size_t repetitions);

// Results in Google Benchmark's own formats: a table, JSON or CSV.

// Called once per benchmark, as soon as all its repetitions are done. Returns whether its row is shown.
using Ended = std::function<bool(const std::string& name, std::size_t repetitions)>;

// Runs the registered benchmarks. `json_file`: gets Google Benchmark's JSON of those
// that are shown, whole or not at all; empty: none.
void run_benchmarks(Ended ended, const std::string& json_file);

}  // namespace lockstep::kernel_bench
