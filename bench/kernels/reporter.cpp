#include "bench/kernels/reporter.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "bench/kernels/device_ceilings.h"
#include "core/statistics.h"

namespace lockstep::kernel_bench {
namespace {

using Run = benchmark::BenchmarkReporter::Run;

// Hands everything on to Google Benchmark's reporter, and keeps in mind which instances ran, how often.
class RememberingReporter final : public benchmark::BenchmarkReporter {
 public:
  explicit RememberingReporter(benchmark::BenchmarkReporter& shown) : shown_(shown) {}

  bool ReportContext(const Context& context) override { return shown_.ReportContext(context); }
  void Finalize() override { shown_.Finalize(); }
  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> named = runs;
    for (Run& run : named) {
      if (run.run_type == Run::RT_Iteration) ++repetitions_[run.run_name.function_name];
      run.run_name.time_type.clear();  // "/manual_time" and "/min_time:..." say nothing here
      run.run_name.min_time.clear();
    }
    shown_.ReportRuns(named);
  }

  // 0 where it did not run.
  std::size_t repetitions(const std::string& name) const {
    const auto found = repetitions_.find(name);
    return found == repetitions_.end() ? 0 : found->second;
  }

 private:
  benchmark::BenchmarkReporter& shown_;
  std::map<std::string, std::size_t> repetitions_;
};

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

// Bandwidths, registers and dispatch first; products go through a place, whose pool is made when that pool is gone.
Ceilings cpu_ceilings(core::Device& device, int threads, const core::Caches& caches) {
  Ceilings all;
  {
    kernels::ThreadPool pool(threads, /*first_core=*/0);
    all = measure_cpu_ceilings(pool, caches);
  }
  const std::unique_ptr<Place> place = make_cpu_place(threads);
  Arena arena(device);
  all.push_back(gemm_ceiling(*place, arena, "cpu", threads, core::DType::f32, 1024));
  all.push_back(gemm_ceiling(*place, arena, "cpu", threads, core::DType::bf16, 2048));
  return all;
}

void measure_ceilings(Bench& bench) {
  const std::unique_ptr<core::Device> device = make_device(bench.flags.device);
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

int collect(const Bench& bench, const RememberingReporter& reporter, core::RecordWriter* writer) {
  const core::RunRecord run = run_record(bench);
  if (writer != nullptr) {
    writer->write(run);
    for (const Ceiling& ceiling : bench.ceilings) writer->write(ceiling_record(run.run, ceiling));
  }
  int status = 0;
  for (const Instance& instance : bench.instances) {
    const std::size_t repetitions = reporter.repetitions(instance.name());
    if (repetitions == 0) continue;
    if (writer != nullptr) writer->write(kernel_record(run.run, bench, instance, repetitions));
    warn_of_shared_cores(instance);
    status = std::max(status, exit_status_of(instance));
  }
  return status;
}

std::vector<core::OperandRecord> operand_records(const kernels::KernelCase& one) {
  constexpr std::array kAccess{"read", "write", "update"};  // in the order of kernels::Access
  std::vector<core::OperandRecord> records;
  for (const kernels::CaseOperand& operand : one.operands) {
    records.push_back({operand.name, kAccess.at(static_cast<std::size_t>(operand.access)),
                       std::string(core::short_name_of(operand.dtype)), static_cast<std::int64_t>(operand.bytes())});
  }
  return records;
}

// The samples of the last `repetitions` trials, and the mean of their calls.
void add_times(core::KernelRecord& record, const std::vector<Trial>& trials, std::size_t repetitions) {
  double total_us = 0;
  for (std::size_t t = trials.size() - std::min(repetitions, trials.size()); t < trials.size(); ++t) {
    const Trial& trial = trials[t];
    record.samples_us.insert(record.samples_us.end(), trial.samples_us.begin(), trial.samples_us.end());
    record.iterations += trial.iterations;
    total_us += core::summarize(trial.samples_us).mean * static_cast<double>(trial.iterations);
  }
  record.time_us = total_us / static_cast<double>(record.iterations);
}

}  // namespace

core::RunRecord run_record(const Bench& bench) {
  core::RunRecord run;
  run.run = core::new_run_id();
  run.program = "kernels_bench";
  run.command = bench.flags.command;
  run.started = core::utc_now();
  run.source = core::source();
  run.build = core::build();
  run.machine = bench.machine;
  run.transport = "local";
  run.rank_kind = "threads";
  run.seed = bench.flags.seed;
  return run;
}

core::CeilingRecord ceiling_record(const std::string& run, const Ceiling& ceiling) {
  core::CeilingRecord record;
  record.run = run;
  record.device = ceiling.device;
  record.threads = ceiling.threads;
  record.name = name_of(ceiling.kind);
  if (ceiling.level) record.level = name_of(*ceiling.level);
  if (ceiling.dtype) record.dtype = core::short_name_of(*ceiling.dtype);
  record.value = ceiling.value();
  record.unit = unit_of(ceiling.kind);
  record.samples = ceiling.samples;
  return record;
}

core::KernelRecord kernel_record(const std::string& run, const Bench& bench, const Instance& instance,
                                 std::size_t repetitions) {
  const kernels::KernelCase& one = *instance.one;
  const Outcome& outcome = instance.outcome;
  core::KernelRecord record;
  record.run = run;
  record.kernel = one.kernel;
  record.shape = one.shape;
  record.dtype = core::short_name_of(one.dtype);
  record.device = instance.setting.device;
  record.threads = instance.setting.threads;
  record.cores = outcome.cores;
  record.cache = name_of(instance.setting.cache);
  record.timing = instance.timing;
  record.status = outcome.status;
  record.checked = outcome.checked;
  if (!outcome.error.empty()) record.error = outcome.error;
  record.flops = one.cost.flops;
  record.bytes = one.cost.bytes;
  record.operands = operand_records(one);
  if (outcome.status != "ok" || outcome.trials.empty()) return record;
  add_times(record, outcome.trials, repetitions);
  const double median_us = core::median(record.samples_us);
  record.gbps = one.cost.bytes / median_us / 1e3;
  record.gflops = one.cost.flops / median_us / 1e3;
  if (const auto bound = bench.bound_of_instance(instance)) {
    record.bound = bound->name;
    record.ceiling_us = bound->us;
    record.share = bound->us / median_us;
  }
  return record;
}

int run_and_report(Bench& bench) {
  std::optional<core::RecordWriter> writer;
  if (!bench.flags.json_file.empty()) writer.emplace(bench.flags.json_file);
  Workbench workbench({bench.flags.device, bench.flags.seed, bench.flags.check, cold_bytes_of(bench.machine.caches)});
  make_instances(bench);
  register_benchmarks(bench, workbench);
  if (bench.flags.ceilings && !lists_only(bench.flags)) measure_ceilings(bench);
  const std::unique_ptr<benchmark::BenchmarkReporter> shown(benchmark::CreateDefaultDisplayReporter());
  RememberingReporter reporter(*shown);
  if (benchmark::RunSpecifiedBenchmarks(&reporter) == 0) {
    throw core::usage_error("--benchmark_filter matches no benchmark; allowed: what --benchmark_list_tests prints");
  }
  const int status = collect(bench, reporter, writer ? &*writer : nullptr);
  if (writer) writer->commit();
  return status;
}

}  // namespace lockstep::kernel_bench
