// Registers instances as benchmarks of Google Benchmark.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <vector>

#include "bench/kernels/flags.h"
#include "bench/kernels/instance.h"
#include "bench/kernels/workbench.h"
#include "core/gpu_record.h"
#include "core/provenance.h"

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

}  // namespace lockstep::kernel_bench
