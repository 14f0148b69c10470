// The machine's peak rates, measured in the same run, and the minimum time that a kernel could take, given them:
// docs/metrics.md, "Share of the roofline".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/kernels_bench/flags.h"
#include "bench/kernels_bench/timed_device.h"
#include "core/dtype.h"
#include "core/provenance.h"
#include "kernels/base/kernel_case.h"
#include "kernels/base/thread_pool.h"

namespace lockstep::kernel_bench {

enum class Level : std::uint8_t { l1, l2, l3, memory };
std::string name_of(Level level);

// Copy reads one array and writes one. Triad reads two and writes one. Read sums one. Fma works in registers.
enum class CeilingKind : std::uint8_t { copy, read, triad, fma, gemm, launch };
std::string name_of(CeilingKind kind);
std::string unit_of(CeilingKind kind);  // "gbps", "gflops", "us"

struct Ceiling {
  CeilingKind kind;
  std::string device;
  int threads;
  std::optional<Level> level;        // only bandwidths have a level
  std::optional<core::DType> dtype;  // only fma and gemm have a dtype
  std::vector<double> samples;       // in unit_of(kind)
  double value() const;              // the best sample: disturbances only slow a machine down
};

using Ceilings = std::vector<Ceiling>;

// Returns the cache level in which operands of this size stay from call to call. Each thread has its own L1 and L2
// cache; the L3 cache is shared with other programs, so only half of it counts.
Level level_of(double footprint_bytes, int threads, const core::Caches& caches);
// Bytes of all threads' operands with which a level is measured: half of a cache; for memory, twice the L3 cache.
double footprint_of(Level level, int threads, const core::Caches& caches);
// The same for a GPU's memory: its last cache is the L2, of the size that the device reports, or 0 if unknown.
double cold_bytes_of_gpu(std::size_t l2_bytes);

// Measures all ceilings of the CPU with this pool, in about two seconds.
Ceilings measure_cpu_ceilings(kernels::ThreadPool& pool, const core::Caches& caches);

// Ceilings that are measured through the kernels themselves: the same code on every device.

// The product of two square matrices with `columns` columns by our GEMM, which chooses its fastest implementation.
Ceiling gemm_ceiling(TimedDevice& timed, Arena& arena, const std::string& device, int threads, core::DType dtype,
                     std::int64_t columns);

// The smallest kernel: a GELU of one element.
Ceiling launch_ceiling(TimedDevice& timed, Arena& arena, const std::string& device);

// Measures copies, sums and triads within the device's memory, products and launches on a CUDA device.
Ceilings measure_cuda_ceilings(core::Device& device);

// Loops whose speed is a ceiling, compiled for the machine's best instruction set.

// The instruction set that Highway chooses here among those that kernels are compiled for: "AVX3" is AVX-512.
std::string instruction_set();

// Each processes `floats` elements of each array, a multiple of 128; arrays are 64-byte aligned. `past_caches`: uses
// non-temporal stores.
void copy_loop(const float* a, float* to, std::int64_t floats, bool past_caches);
void triad_loop(const float* a, const float* b, float* to, std::int64_t floats, bool past_caches);
float read_loop(const float* a, std::int64_t floats);

// Runs fused multiply-adds in registers; returns the number of FLOPs.
double fma_f32_loop(std::int64_t rounds);

// A kernel's work, as far as the ceilings need it.
struct Work {
  double flops = 0;
  double bytes = 0;            // declared bytes
  double footprint_bytes = 0;  // all operands, once each, as far as they are touched
  double written_share = 0;    // share of the transferred bytes that is written
  core::DType dtype = core::DType::f32;
};
Work work_of(const kernels::KernelCase& kernel_case);

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
