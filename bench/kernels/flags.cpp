#include "bench/kernels/flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "core/cores.h"
#include "core/error.h"
#include "kernels/gemm/gemm_probe.h"

namespace lockstep::kernel_bench {
namespace {

bool is_benchmarks(const std::string& word) {
  return word.rfind("--benchmark_", 0) == 0 || word.rfind("--v=", 0) == 0;
}

std::vector<int> all_or_one() {
  const int cores = core::usable_cores();
  return cores == 1 ? std::vector<int>{1} : std::vector<int>{1, cores};
}

void declare(CLI::App& app, BenchFlags& flags) {
  const std::map<std::string, Cache> caches{{"warm", Cache::warm}, {"cold", Cache::cold}};
  app.allow_extras();
  app.add_option("--threads", flags.threads, "numbers of threads, each bound to a core of its own")
      ->delimiter(',')
      ->check(CLI::Range(1, core::usable_cores()))
      ->capture_default_str();
  app.add_option("--cache", flags.caches,
                 "warm: the same operands each call; cold: others, past all caches [warm,cold]")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(caches).description(""));  // which would show values, as bytes
  app.add_option("--device", flags.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--gemm", flags.gemm, "implementation of products on the CPU [the fastest for each shape, measured]")
      ->check(CLI::IsMember(kernels::gemm_implementations(core::DType::f32)));
  app.add_option("--json", flags.json_file, "file for records (docs/record_format.md)");
  app.add_option("--time-budget", flags.time_budget_s,
                 "seconds for the whole run; benchmarks that would begin later are left out")
      ->check(CLI::NonNegativeNumber);
  app.add_option("-T,--timeout", flags.timeout_s, "seconds after which a wait for a GPU fails")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app.add_option("--check", flags.check, "0: do not hold results against their references")->capture_default_str();
  app.add_option("--ceilings", flags.ceilings, "0: do not measure what the machine can do; no shares then")
      ->capture_default_str();
  app.add_flag("--serve", flags.serve, "run what standard input says, for ci/gate.py (bench/serve/orders.h)");
  app.add_option("--seed", flags.seed, "of the operands")->capture_default_str();
}

}  // namespace

std::string name_of(Cache cache) {
  return cache == Cache::warm ? "warm" : "cold";
}

BenchFlags parse_bench_flags(int argc, const char* const* argv) {
  BenchFlags flags;
  flags.threads = all_or_one();
  flags.command.assign(argv, argv + argc);
  flags.command[0] = std::filesystem::path(flags.command[0]).filename().string();
  CLI::App app("Times every kernel, checks its result, and holds it against what the machine can do", flags.command[0]);
  declare(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    flags.help = true;
    flags.help_text = app.help();
  } catch (const CLI::ParseError& error) {
    throw core::usage_error(std::string(error.what()) + "; allowed: what --help lists");
  }
  flags.for_benchmark.push_back(flags.command[0]);
  for (const std::string& word : app.remaining()) {
    if (is_benchmarks(word)) {
      flags.for_benchmark.push_back(word);
    } else {
      throw core::usage_error("unknown argument '" + word + "'; allowed: what --help lists");
    }
  }
  return flags;
}

}  // namespace lockstep::kernel_bench
