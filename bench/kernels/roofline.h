// The minimum time that a kernel could take, given the ceilings of the machine: docs/metrics.md, "Share of the
// roofline".
#pragma once

#include <optional>
#include <string>

#include "bench/kernels/ceilings.h"
#include "bench/kernels/flags.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernel_bench {

// A kernel's work, as far as the ceilings need it.
struct Work {
  double flops = 0;
  double bytes = 0;            // declared bytes
  double footprint_bytes = 0;  // all operands, once each, as far as they are touched
  double written_share = 0;    // share of the transferred bytes that is written
  core::DType dtype = core::DType::f32;
};
Work work_of(const kernels::KernelCase& one);

struct Bound {
  std::string name;  // "memory", "compute", "launch"
  double us;
};

// How and where a kernel is run.
struct Setting {
  std::string device = "cpu";
  int threads = 1;
  Cache cache = Cache::warm;
  int copies = 1;  // copies that run at the same time, each with this many threads; on the CPU
};

// Returns the ceiling that gives the longest time; nullopt if none was measured for the setting.
std::optional<Bound> bound_of(const Work& work, const Setting& setting, const Ceilings& ceilings,
                              const core::Caches& caches);

}  // namespace lockstep::kernel_bench
