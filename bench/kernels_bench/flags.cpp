#include "bench/kernels_bench/flags.h"

#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "bench/program/program.h"
#include "core/ranks.h"
#include "kernels/attention/attention.h"
#include "kernels/gemm/gemm_choice.h"
#include "kernels/moe/grouped_gemm.h"
#include "workload/model.h"

namespace lockstep::kernel_bench {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<BenchFlags>;

constexpr std::int64_t kMostSeed = std::numeric_limits<std::int64_t>::max();

bool is_benchmarks(const std::string& word) {
  return word.rfind("--benchmark_", 0) == 0 || word.rfind("--v=", 0) == 0;
}

// Takes --benchmark_out=FILE and --benchmark_out_format=json out of Google Benchmark's flags: it would write the file
// without noticing a disk that is full.
void take_benchmark_out(BenchFlags& flags) {
  constexpr std::string_view kFile = "--benchmark_out=";
  constexpr std::string_view kFormat = "--benchmark_out_format=";
  std::vector<std::string> others;
  for (const std::string& word : flags.for_benchmark) {
    if (word.starts_with(kFile)) {
      flags.benchmark_out = word.substr(kFile.size());
      if (flags.benchmark_out.empty()) throw core::usage_error("--benchmark_out: no name; allowed: the name of a file");
    } else if (word.starts_with(kFormat)) {
      const std::string format = word.substr(kFormat.size());
      if (format != "json")
        throw core::usage_error("--benchmark_out_format " + format + ": not written; allowed: json");
    } else {
      others.push_back(word);
    }
  }
  flags.for_benchmark = std::move(others);
}

std::vector<int> all_or_one() {
  const int cores = core::usable_cores();
  return cores == 1 ? std::vector<int>{1} : std::vector<int>{1, cores};
}

std::vector<Cache> caches_of(const FlagValue& value) {
  std::vector<Cache> caches;
  for (const FlagValue& part : value.list()) {
    caches.push_back(part.index_of(std::array{"warm", "cold"}) == 0 ? Cache::warm : Cache::cold);
  }
  return caches;
}

void check_together(const program::CommandLine& line, const BenchFlags& flags) {
  const int cores = core::usable_cores();
  for (const int copies : flags.copies) {
    if (copies == 1) continue;
    if (flags.device != "cpu") throw core::usage_error("--copies on " + flags.device + "; allowed: on cpu");
    for (const int threads : flags.threads) {
      if (copies * threads <= cores) continue;
      throw core::usage_error("--copies " + std::to_string(copies) + " of --threads " + std::to_string(threads) +
                              "; allowed: at most " + std::to_string(cores) + " threads of all copies, a core each");
    }
  }
  for (const char* of_cuda : {"--attention", "--experts"}) {
    if (!line.value(of_cuda) || flags.device == "cuda") continue;
    throw core::usage_error(std::string(of_cuda) + " with --device " + flags.device + "; allowed: with --device cuda");
  }
  if (flags.model.empty() && line.value("--layout")) {
    throw core::usage_error("--layout requires --model");
  }
}

const std::array kFlags{
    Flag{"--threads", "1 and all cores",
         "numbers of threads to time with, a list; each thread is bound to its own core",
         [](BenchFlags& f, const FlagValue& v) { f.threads = integer_list(v, 1, core::usable_cores()); }},
    Flag{"--cache", "warm,cold", "warm: the same operands in each call; cold: operands that no cache holds",
         [](BenchFlags& f, const FlagValue& v) { f.caches = caches_of(v); }},
    Flag{"--copies", "1",
         "numbers of copies that run concurrently, each with its own operands and cores, as ranks run them",
         [](BenchFlags& f, const FlagValue& v) { f.copies = integer_list(v, 1, core::usable_cores()); }},
    Flag{"--model", "none",
         "time the kernels of a training step of this model (as mini_train --model) in each --layout",
         [](BenchFlags& f, const FlagValue& v) {
           if (v.text != "none") f.model = v.checked_by(workload::parse_model);
         }},
    Flag{"--layout", "one rank", "layouts of --model (as mini_train --layout), separated by semicolons",
         [](BenchFlags& f, const FlagValue& v) { f.layouts = text_list(v, ';'); }},
    Flag{"--device", "cpu", "cpu or cuda",
         [](BenchFlags& f, const FlagValue& v) {
           f.device = v.one_of(std::array{"cpu", "cuda"});
         }},
    Flag{"--gemm", "the fastest for each shape, measured", "implementation of matrix products on the CPU",
         [](BenchFlags& f, const FlagValue& v) { f.gemm = v.one_of(kernels::gemm_implementations(core::DType::f32)); }},
    Flag{"--attention", kernels::kAttentionChoices.front(), kernels::kAttentionHelp,
         [](BenchFlags& f, const FlagValue& v) { f.choices.attention = v.one_of(kernels::kAttentionChoices); }},
    Flag{"--experts", kernels::kExpertsChoices.front(),
         "kernels of experts' products on a GPU: cublaslt, or wgmma (compute capability 9.0; bf16 and f16, inputs and "
         "outputs multiples of 8)",
         [](BenchFlags& f, const FlagValue& v) { f.choices.experts = v.one_of(kernels::kExpertsChoices); }},
    program::json_flag<BenchFlags>(),
    Flag{"--time-budget", "none",
         "seconds for the whole run; one shape of each kernel is always timed, and first; shapes and ways that would "
         "start later are skipped, and recorded as skipped",
         [](BenchFlags& f, const FlagValue& v) { f.time_budget_s = v.number_from(0, 1e9); }},
    Flag{"-T,--timeout", "60", "seconds after which a wait for a GPU fails",
         [](BenchFlags& f, const FlagValue& v) { f.timeout_s = integer(v, 1, 86400); }},
    Flag{"--check", "1", "0: do not compare results with their references",
         [](BenchFlags& f, const FlagValue& v) { f.check = v.yes_or_no(); }},
    Flag{"--ceilings", "1", "0: do not measure the machine's peaks; results are then not compared with them",
         [](BenchFlags& f, const FlagValue& v) { f.ceilings = v.yes_or_no(); }},
    Flag{"--seed", "1", "seed of the operands' values",
         [](BenchFlags& f, const FlagValue& v) { f.seed = static_cast<std::uint64_t>(v.integer(0, kMostSeed)); }},
};

}  // namespace

std::string name_of(Cache cache) {
  return cache == Cache::warm ? "warm" : "cold";
}

BenchFlags parse_bench_flags(int argc, const char* const* argv) {
  BenchFlags flags;
  flags.threads = all_or_one();
  flags.set_command(argc, argv);
  std::vector<const char*> ours;
  for (int i = 0; i < argc; ++i) {
    if (i > 0 && is_benchmarks(argv[i])) {
      flags.for_benchmark.emplace_back(argv[i]);
    } else {
      ours.push_back(argv[i]);
    }
  }
  take_benchmark_out(flags);
  flags.for_benchmark.insert(flags.for_benchmark.begin(), flags.program);
  program::CommandLine line(
      "Times every kernel, checks its result, and compares its rate with the machine's peak. Google Benchmark's flags, "
      "such as --benchmark_filter=REGEX, work too");
  declare_all(line, kFlags, "Options");
  line.add_switch("--serve", flags.serve,
                  "worker mode for ci/gate.py: run the benchmarks that standard input asks for (bench/serve/orders.h)",
                  "Options");
  line.parse(static_cast<int>(ours.size()), ours.data());
  read_all(line, kFlags, flags);
  if (line.value("--copies") && !line.value("--threads")) flags.threads = {1};
  check_together(line, flags);
  return flags;
}

}  // namespace lockstep::kernel_bench
