// The machine's peaks, which kernels are compared with, measured in the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/provenance.h"
#include "kernels/base/thread_pool.h"

namespace lockstep::kernel_bench {

enum class Level : std::uint8_t { l1, l2, l3, memory };
std::string name_of(Level level);

// Copy: one array read, one written. Triad: two read, one written. Read: a sum. Fma: in registers.
enum class CeilingKind : std::uint8_t { copy, read, triad, fma, gemm, launch };
std::string name_of(CeilingKind kind);
std::string unit_of(CeilingKind kind);  // "gbps", "gflops", "us"

struct Ceiling {
  CeilingKind kind;
  std::string device;
  int threads;
  std::optional<Level> level;        // of bandwidths
  std::optional<core::DType> dtype;  // of fma and gemm
  std::vector<double> samples;       // in unit_of(kind)
  double value() const;              // the best sample: what disturbs a machine only takes away from it
};

using Ceilings = std::vector<Ceiling>;

// The cache in which operands of so many bytes stay from call to call. Each of the threads has its own first two
// levels; a machine's last level is shared with others, so that half of it counts.
Level level_of(double footprint_bytes, int threads, const core::Caches& caches);
// Bytes of all threads' operands that stand for a level: half of a cache; for memory twice the last level.
double footprint_of(Level level, int threads, const core::Caches& caches);
// The same for memory and a GPU, whose last cache is its second: its size, as the device says, or 0.
double cold_bytes_of_gpu(std::size_t l2_bytes);

// All ceilings of the CPU with this pool, about two seconds' work.
Ceilings measure_cpu_ceilings(kernels::ThreadPool& pool, const core::Caches& caches);

}  // namespace lockstep::kernel_bench
