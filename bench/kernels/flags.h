// The command line of kernels_bench: our own flags; Google Benchmark's --benchmark_* are left to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/program/program.h"

namespace lockstep::kernel_bench {

// Warm: the same operands call after call. Cold: other operands each call, past the last-level cache.
enum class Cache : std::uint8_t { warm, cold };
std::string name_of(Cache cache);

struct BenchFlags : program::Invocation {
  std::vector<int> threads;  // of the CPU's pool; 1 and all cores if not given
  std::vector<Cache> caches{Cache::warm, Cache::cold};
  std::vector<int> copies{1};  // that run at the same time, on the CPU
  // The model whose step's kernels are timed, in place of the list of all (kernels/registry.h); empty: that list.
  std::string model;
  std::vector<std::string> layouts{""};
  std::string device = "cpu";
  std::string gemm;          // implementation of products on the CPU; empty: the fastest for each shape
  std::string attention;     // kernels of attention on CUDA (attention_choice.h); empty: the default
  int timeout_s = 60;        // of every wait for a GPU
  double time_budget_s = 0;  // of the whole run; 0: as long as --benchmark_min_time says
  bool check = true;
  bool ceilings = true;
  bool serve = false;  // be a worker (bench/serve/orders.h) in place of timing and reporting
  std::uint64_t seed = 1;

  std::vector<std::string> for_benchmark;  // the program's name, and what Google Benchmark is to read
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
BenchFlags parse_bench_flags(int argc, const char* const* argv);

}  // namespace lockstep::kernel_bench
