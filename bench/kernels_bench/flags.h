// The command line of kernels_bench. Google Benchmark's own --benchmark_* flags are passed on to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/kernels_bench/timed_device.h"
#include "bench/program/program.h"

namespace lockstep::kernel_bench {

// Warm: the same operands in each call. Cold: other operands in each call, beyond the last-level cache.
enum class Cache : std::uint8_t { warm, cold };
std::string name_of(Cache cache);

struct BenchFlags : program::Invocation {
  std::vector<int> threads;  // sizes of the CPU's thread pool; default: 1 and all cores
  std::vector<Cache> caches{Cache::warm, Cache::cold};
  std::vector<int> copies{1};  // copies that run at the same time, on the CPU
  // Model whose step's kernels are timed instead of the list in kernels/registry.h; empty: that list.
  std::string model;
  std::vector<std::string> layouts{""};
  std::string device = "cpu";
  std::string gemm;          // implementation of GEMM on the CPU; empty: the fastest for each shape
  CudaChoices choices;       // kernels to use on CUDA
  int timeout_s = 60;        // deadline of every wait for a GPU
  double time_budget_s = 0;  // for the whole run; 0: no limit, each benchmark takes --benchmark_min_time
  bool check = true;
  bool ceilings = true;
  bool serve = false;  // run as a worker (bench/serve/orders.h) instead of timing and reporting
  std::uint64_t seed = 1;

  std::string benchmark_out;               // file of --benchmark_out, which we write (run_benchmarks()); empty: none
  std::vector<std::string> for_benchmark;  // the program's name, and the flags for Google Benchmark
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
BenchFlags parse_bench_flags(int argc, const char* const* argv);

}  // namespace lockstep::kernel_bench
