// Times every kernel at the trainer's shapes, warm and cold, and compares it with the machine's ceilings:
//   kernels_bench --benchmark_filter=layernorm --threads 1,2 --cache cold --json kernels.jsonl
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/kernels_bench/benchmarks.h"
#include "bench/kernels_bench/roofline.h"
#include "bench/program/program.h"
#include "bench/program/progress.h"
#include "bench/serve/orders.h"
#include "core/error.h"
#include "core/provenance.h"
#include "core/record.h"
#include "kernels/registry.h"

namespace lockstep::kernel_bench {
namespace {

void warn_of_shared_cores(const Instance& instance) {
  std::vector<int> cores = instance.outcome.cores;
  std::sort(cores.begin(), cores.end());
  if (std::adjacent_find(cores.begin(), cores.end()) == cores.end()) return;
  std::fprintf(stderr, "%s: threads shared a core\n", instance.name().c_str());
}

int exit_status_of(const Instance& instance) {
  if (instance.outcome.status == "ok") return 0;
  return static_cast<int>(instance.outcome.status == "wrong" ? core::Failure::wrong_data : core::Failure::internal);
}

// Bandwidths, registers and dispatch first; products use a TimedDevice, whose pool is made after that pool is
// destroyed.
Ceilings cpu_ceilings(core::Device& device, int threads, const core::Caches& caches) {
  Ceilings all;
  {
    kernels::ThreadPool pool(threads, /*first_core=*/0);
    all = measure_cpu_ceilings(pool, caches);
  }
  const std::unique_ptr<TimedDevice> timed = make_timed_cpu(threads);
  Arena arena(device);
  constexpr std::int64_t kColumns = 512;  // a millisecond's work, that other programs seldom interrupt
  for (core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    all.push_back(gemm_ceiling(*timed, arena, "cpu", threads, dtype, kColumns));
  }
  return all;
}

void measure_ceilings(Bench& bench) {
  const std::unique_ptr<core::Device> device =
      make_device(bench.flags.device, std::chrono::seconds(bench.flags.timeout_s));
  if (bench.flags.device == "cuda") {
    bench.ceilings = measure_cuda_ceilings(*device);
    return;
  }
  for (int threads : bench.flags.threads) {
    const Ceilings found = cpu_ceilings(*device, threads, bench.machine.caches);
    bench.ceilings.insert(bench.ceilings.end(), found.begin(), found.end());
  }
}

bool lists_only(const BenchFlags& flags) {
  return std::any_of(flags.for_benchmark.begin(), flags.for_benchmark.end(), [](const std::string& word) {
    return word == "--benchmark_list_tests" || word == "--benchmark_list_tests=true";
  });
}

// Takes instances as they end, by their names.
class Collector {
 public:
  explicit Collector(const Bench& bench) : bench_(bench), run_(run_record(bench)) {
    for (const Instance& instance : bench.instances) instances_[instance.name()] = &instance;
  }

  void begin() {
    if (bench_.flags.json_file.empty()) return;
    writer_.emplace(bench_.flags.json_file);
    writer_->write(run_);
  }

  void take_ceilings() {
    if (!writer_) return;
    for (const Ceiling& ceiling : bench_.ceilings) writer_->write(ceiling_record(run_.run, ceiling));
  }

  // False if the instance was skipped.
  bool take(const std::string& name, std::size_t repetitions) {
    const Instance& instance = *instances_.at(name);
    ++met_;
    if (writer_) {
      writer_->write(kernel_record(run_.run, bench_, instance, repetitions));
    }
    if (instance.outcome.status == "left_out") {
      ++left_out_;
      return false;
    }
    warn_of_shared_cores(instance);
    status_ = std::max(status_, exit_status_of(instance));
    return true;
  }

  int finish() {
    if (writer_) writer_->commit();
    if (left_out_ > 0) {
      std::fprintf(stderr, "kernels_bench: --time-budget %g ran out; %d of %d benchmarks were skipped\n",
                   bench_.flags.time_budget_s, left_out_, met_);
    }
    return status_;
  }

 private:
  const Bench& bench_;
  core::RunRecord run_;
  std::optional<core::RecordWriter> writer_;
  std::map<std::string, const Instance*> instances_;
  int status_ = 0;
  int met_ = 0;
  int left_out_ = 0;
};

WorkbenchOptions workbench_options(const Bench& bench) {
  return {bench.flags.device,
          bench.flags.seed,
          bench.flags.check,
          bench.cold_bytes(),
          bench.flags.gemm,
          bench.flags.choices,
          std::chrono::seconds(bench.flags.timeout_s)};
}

// Instances as the cases of a worker. What an order asks for first is made ready then, so that a worker of many cases
// starts at once.
int serve_kernels(Bench& bench) {
  const std::vector<Instance*> instances = chosen_instances(bench);
  std::vector<std::string> names;
  for (const Instance* instance : instances) names.push_back(instance->name());
  Workbench workbench(workbench_options(bench));
  serve::serve("kernels_bench", names, [&](std::size_t index, std::int64_t calls) {
    Instance& instance = *instances[index];
    workbench.prepare(instance);
    if (instance.outcome.status != "ok") {
      throw core::Error(core::Failure::wrong_data, instance.name() + ": " + instance.outcome.error);
    }
    return workbench.us_of_call(calls);
  });
  return 0;
}

// Runs what --benchmark_filter chooses, with Google Benchmark's own table, JSON or CSV on the terminal, and writes each
// record of --json when it is known. Returns the exit status: 0, or the worst instance's.
int run_and_report(Bench& bench) {
  make_instances(bench);
  if (chosen_instances(bench).empty()) {
    throw core::usage_error("--benchmark_filter matches no benchmark; allowed: what --benchmark_list_tests prints");
  }
  if (bench.flags.serve) return serve_kernels(bench);
  if (lists_only(bench.flags)) {  // without the endings of Google Benchmark's list
    for (const Instance* instance : chosen_instances(bench)) program::to_stdout(instance->name() + "\n");
    return 0;
  }
  program::check_writable({bench.flags.benchmark_out});
  Collector collector(bench);
  collector.begin();
  if (bench.flags.ceilings) measure_ceilings(bench);
  collector.take_ceilings();
  Workbench workbench(workbench_options(bench));
  register_benchmarks(bench, workbench);
  program::Progress progress("benchmarks", chosen_instances(bench).size());
  const program::Print before_row = progress.around([](const std::string&) {});
  run_benchmarks(
      [&](const std::string& name, std::size_t repetitions) {
        before_row("");
        progress.one_done();
        return collector.take(name, repetitions);
      },
      bench.flags.benchmark_out);
  return collector.finish();
}

// Google Benchmark wants writable words, and keeps a pointer to the first.
void initialize(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  if (count > 1) throw core::usage_error(std::string("unknown argument '") + pointers[1] + "'");
}

BenchFlags flags_of(int argc, char** argv) {
  try {
    return parse_bench_flags(argc, argv);
  } catch (const program::HelpRequested& help) {
    program::to_stdout(help.text + "\nGoogle Benchmark's flags:\n");
    benchmark::PrintDefaultHelp();
    throw program::HelpRequested{};
  }
}

// The kernels of all layouts' steps, each once.
std::vector<kernels::KernelCase> cases_of(const BenchFlags& flags) {
  const workload::Model model = workload::parse_model(flags.model);
  std::vector<kernels::KernelCase> cases;
  std::set<std::string> names;
  for (const std::string& text : flags.layouts) {
    const workload::Layout layout = workload::parse_layout(text);
    if (const std::string reason = why_invalid(model, layout); !reason.empty()) {
      throw core::usage_error(std::string("--layout ").append(text).append(": ").append(reason));
    }
    for (kernels::KernelCase& kernel_case : cases_of_step(model, layout)) {
      if (names.insert(kernel_case.name()).second) cases.push_back(std::move(kernel_case));
    }
  }
  return cases;
}

std::vector<kernels::KernelCase> all_cases() {
  std::vector<kernels::KernelCase> all;
  for (const kernels::KernelFamily& family : kernels::kKernelFamilies) {
    for (kernels::KernelCase& bench_case : family.bench_cases()) all.push_back(std::move(bench_case));
  }
  return all;
}

int run(int argc, char** argv) {
  BenchFlags flags = flags_of(argc, argv);
  initialize(flags.for_benchmark);
  std::vector<kernels::KernelCase> cases = flags.model.empty() ? all_cases() : cases_of(flags);
  Bench bench{std::move(flags), core::this_machine(), std::move(cases)};
  bench.look = core::watch_of(bench_gpus(bench));
  return run_and_report(bench);
}

}  // namespace
}  // namespace lockstep::kernel_bench

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("kernels_bench", [&] { return lockstep::kernel_bench::run(argc, argv); });
}
