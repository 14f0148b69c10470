// Registers instances as benchmarks of Google Benchmark.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/kernels/flags.h"
#include "bench/kernels/workbench.h"
#include "core/device_cuda.h"
#include "core/provenance.h"
#include "core/record.h"
#include "kernels/base/kernel_case.h"
#include "workload/kernel_call.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::kernel_bench {

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
  // Bytes of operands to rotate through so that no cache of the device holds any of them from call to call.
  double cold_bytes() const;
  std::optional<Bound> bound_of_instance(const Instance& instance) const {
    return bound_of(work_of(*instance.one), instance.setting, ceilings, machine.caches);
  }
};

// Makes an instance of every case for every number of threads, kind of timing and cache state that the flags ask for.
void make_instances(Bench& bench);

// Returns the instances that --benchmark_filter chooses.
std::vector<Instance*> chosen_instances(Bench& bench);
int num_chosen(const Bench& bench);

// With a time budget, the remaining time is divided among the instances, and those that would begin after its end are
// left out.
void register_benchmarks(Bench& bench, Workbench& workbench);

// The kernels of a training step as cases, with the step's shapes and dtypes.

// Each kernel once, in the order of a step: those of the stages' layers, embedding and head, and the optimizer's. Work
// that other frameworks launch but this library has no kernel for is left out. The layout must fit the model
// (why_invalid()).
std::vector<kernels::KernelCase> cases_of_step(const workload::Model& model, const workload::Layout& layout);

// Records of a run (docs/record_format.md), and its results in Google Benchmark's own formats.

std::vector<core::CudaDeviceInfo> bench_gpus(const Bench& bench);  // that it uses: the first one, or none
core::RunRecord run_record(const Bench& bench);
core::CeilingRecord ceiling_record(const std::string& run, const Ceiling& ceiling);
// Makes the record of an instance from the samples of its last `repetitions` trials.
core::KernelRecord kernel_record(const std::string& run, const Bench& bench, const Instance& instance,
                                 std::size_t repetitions);

// ---- Prints Google Benchmark's own table, JSON or CSV, and reports each benchmark as soon as it has ended.

// Called once per benchmark, when all its repetitions are done. Returns whether its row is shown.
using Ended = std::function<bool(const std::string& name, std::size_t repetitions)>;

// Runs the registered benchmarks that --benchmark_filter chooses. `json_file`: gets Google Benchmark's JSON of those
// that are shown, whole or not at all; empty: none.
void run_benchmarks(Ended ended, const std::string& json_file);

}  // namespace lockstep::kernel_bench
