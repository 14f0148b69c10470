// Instances as benchmarks of Google Benchmark.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <vector>

#include "bench/kernels/flags.h"
#include "bench/kernels/instance.h"
#include "bench/kernels/workbench.h"
#include "core/provenance.h"

namespace lockstep::kernel_bench {

// The peaks that instances are compared with, and the device that they run on; outlives the benchmarks.
struct Bench {
  BenchFlags flags;
  core::Machine machine;
  std::vector<kernels::KernelCase> cases;
  std::deque<Instance> instances = {};  // addresses stay
  Ceilings ceilings = {};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  // Seconds of --time-budget that are left; nothing without one.
  std::optional<double> seconds_left() const;
  // Bytes of operands to rotate through so that no cache of the device holds any from call to call.
  double cold_bytes() const;
  std::optional<Bound> bound_of_instance(const Instance& instance) const {
    return bound_of(work_of(*instance.one), instance.setting, ceilings, machine.caches);
  }
};

// Every case with every number of threads, way of timing and state of the caches that the flags ask for.
void make_instances(Bench& bench);

// Those that --benchmark_filter chooses.
std::vector<Instance*> chosen_instances(Bench& bench);
int num_chosen(const Bench& bench);

// With a time budget: what is left of it is shared out, and an instance that would begin after its end is left out.
void register_benchmarks(Bench& bench, Workbench& workbench);

}  // namespace lockstep::kernel_bench
