#include "bench/kernels_bench/benchmarks.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "core/device_cuda.h"
#include "core/output_file.h"
#include "core/provenance.h"
#include "core/statistics.h"

namespace lockstep::kernel_bench {
namespace {

std::vector<core::OperandRecord> operand_records(const kernels::KernelCase& kernel_case) {
  constexpr std::array kAccess{"read", "write", "update"};  // in the order of kernels::Access
  std::vector<core::OperandRecord> records;
  for (const kernels::CaseOperand& operand : kernel_case.operands) {
    records.push_back({operand.name, kAccess.at(static_cast<std::size_t>(operand.access)),
                       std::string(core::short_name_of(operand.dtype)), static_cast<std::int64_t>(operand.bytes())});
  }
  return records;
}

// Adds the samples of the last `repetitions` trials, and the mean of their calls.
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

std::vector<core::CudaDeviceInfo> bench_gpus(const Bench& bench) {
  if (bench.flags.device != "cuda") return {};
  std::vector<core::CudaDeviceInfo> gpus = core::cuda_devices();
  gpus.resize(std::min(gpus.size(), std::size_t{1}));
  return gpus;
}

core::RunRecord run_record(const Bench& bench) {
  core::RunRecord run = core::new_run("kernels_bench", bench.flags.command);
  run.machine = bench.machine;
  if (bench.flags.device == "cuda") {
    const std::vector<core::CudaDeviceInfo> gpus = bench_gpus(bench);
    for (const core::CudaDeviceInfo& gpu : gpus) run.machine.gpus.push_back(gpu.name);
    run.gpu = core::gpu_record(gpus, /*ranks_per_gpu=*/1);
    run.libraries.merge(core::gpu_libraries(gpus));
  }
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
  const kernels::KernelCase& kernel_case = *instance.one;
  const Outcome& outcome = instance.outcome;
  core::KernelRecord record;
  record.run = run;
  record.kernel = kernel_case.kernel;
  record.shape = kernel_case.shape;
  record.dtype = core::short_name_of(kernel_case.dtype);
  record.device = instance.setting.device;
  record.threads = instance.setting.threads;
  record.copies = instance.setting.copies;
  record.cores.assign(outcome.cores.begin(), outcome.cores.end());
  record.cache = name_of(instance.setting.cache);
  record.timing = instance.timing;
  if (!outcome.implementation.empty()) record.implementation = outcome.implementation;
  record.status = outcome.status;
  record.checked = outcome.checked;
  if (!outcome.error.empty()) record.error = outcome.error;
  record.flops = kernel_case.cost.flops;
  record.bytes = kernel_case.cost.bytes;
  record.operands = operand_records(kernel_case);
  record.gpu_states = outcome.gpu_states;
  record.gpu_clocks = outcome.gpu_clocks;
  if (outcome.status != "ok" || outcome.trials.empty()) return record;
  add_times(record, outcome.trials, repetitions);
  const double median_us = core::median(record.samples_us);
  record.gbps = kernel_case.cost.bytes / median_us / 1e3;
  record.gflops = kernel_case.cost.flops / median_us / 1e3;
  if (const auto bound = bench.bound_of_instance(instance)) {
    record.bound = bound->name;
    record.ceiling_us = bound->us;
    record.share = bound->us / median_us;
  }
  return record;
}

namespace {

// Debian builds Google Benchmark without NDEBUG, and it warns about itself. Our times are taken by our own clock
// between calls into it (docs/method.md), so this text replaces the warning.
std::string without_library_warning(const std::string& context) {
  std::string kept;
  std::istringstream lines(context);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Library was built as DEBUG") != std::string::npos) {
      line = "Google Benchmark's library is a debug build; it does not run while times are taken.";
    }
    kept += line + "\n";
  }
  return kept;
}

class Reporter final : public benchmark::BenchmarkReporter {
 public:
  explicit Reporter(Ended ended) : shown_(benchmark::CreateDefaultDisplayReporter()), ended_(std::move(ended)) {
    json_.SetOutputStream(&json_text_);
  }
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

  // Google Benchmark's JSON of all runs that were shown, with the names that it gives them.
  std::string json() const { return json_text_.str(); }

 private:
  bool is_to_be_shown(const Run& run);

  std::unique_ptr<benchmark::BenchmarkReporter> shown_;
  std::ostringstream json_text_;
  benchmark::JSONReporter json_;
  Ended ended_;
  std::set<std::string> known_;
  std::set<std::string> hidden_;
};

bool Reporter::ReportContext(const Context& context) {
  std::ostream& errors = GetErrorStream();
  std::ostringstream text;
  shown_->SetErrorStream(&text);
  const bool goes_on = shown_->ReportContext(context);
  shown_->SetErrorStream(&errors);
  errors << without_library_warning(text.str());
  return json_.ReportContext(context) && goes_on;
}

// Repetitions come before their aggregates, which may come alone (--benchmark_report_aggregates_only).
bool Reporter::is_to_be_shown(const Run& run) {
  const std::string& name = run.run_name.function_name;
  if (known_.insert(name).second && !ended_(name, static_cast<std::size_t>(run.repetitions))) hidden_.insert(name);
  return hidden_.count(name) == 0;
}

void Reporter::ReportRuns(const std::vector<Run>& runs) {
  std::vector<Run> as_given;
  std::vector<Run> named;
  for (const Run& run : runs) {
    if (!is_to_be_shown(run)) continue;
    as_given.push_back(run);
    named.push_back(run);
    named.back().run_name.time_type.clear();  // "/manual_time" and "/min_time:..." mean nothing here
    named.back().run_name.min_time.clear();
  }
  if (named.empty()) return;
  shown_->ReportRuns(named);
  json_.ReportRuns(as_given);
}

void Reporter::Finalize() {
  shown_->Finalize();
  json_.Finalize();
}

}  // namespace

void run_benchmarks(Ended ended, const std::string& json_file) {
  std::optional<core::AtomicFile> file;
  if (!json_file.empty()) file.emplace(json_file);  // refused before the run if it cannot be written
  Reporter reporter(std::move(ended));
  benchmark::RunSpecifiedBenchmarks(&reporter, "all");
  if (!file) return;
  file->write(reporter.json());
  file->commit();
}

}  // namespace lockstep::kernel_bench
