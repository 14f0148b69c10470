// Times every kernel at the trainer's shapes, warm and cold, and holds it against the machine's ceilings:
//   kernels_bench --benchmark_filter=layernorm --threads 1,2 --cache cold --json kernels.jsonl
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>
#include <vector>

#include "bench/kernels/program.h"
#include "core/error.h"
#include "kernels/registry.h"

namespace {

using lockstep::core::Error;

// Google Benchmark wants writable words, and keeps a pointer to the first.
void initialize(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  if (count > 1) throw lockstep::core::usage_error(std::string("unknown argument '") + pointers[1] + "'");
}

int run(int argc, char** argv) {
  lockstep::kernel_bench::BenchFlags flags = lockstep::kernel_bench::parse_bench_flags(argc, argv);
  if (flags.help) {
    std::printf("%s\nGoogle Benchmark's flags:\n", flags.help_text.c_str());
    benchmark::PrintDefaultHelp();
    return 0;
  }
  initialize(flags.for_benchmark);
  lockstep::kernel_bench::Bench bench{std::move(flags), lockstep::core::this_machine(),
                                      lockstep::kernels::all_bench_cases()};
  return lockstep::kernel_bench::run_and_report(bench);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "kernels_bench: %s\n", error.what());
    return error.exit_status();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels_bench: %s\n", error.what());
    return 1;
  }
}
