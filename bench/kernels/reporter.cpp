#include "bench/kernels/reporter.h"

#include <benchmark/benchmark.h>

#include <memory>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

namespace lockstep::kernel_bench {
namespace {

// Debian builds Google Benchmark without NDEBUG, and it warns of itself. Our times are taken by our own clock between
// calls into it (docs/method.md), so that the warning is replaced by what is so.
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
  explicit Reporter(Ended ended) : shown_(benchmark::CreateDefaultDisplayReporter()), ended_(std::move(ended)) {}
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override { shown_->Finalize(); }

 private:
  bool is_to_be_shown(const Run& run);

  std::unique_ptr<benchmark::BenchmarkReporter> shown_;
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
  return goes_on;
}

// Repetitions come before their aggregates, which may come alone (--benchmark_report_aggregates_only).
bool Reporter::is_to_be_shown(const Run& run) {
  const std::string& name = run.run_name.function_name;
  if (known_.insert(name).second && !ended_(name, static_cast<std::size_t>(run.repetitions))) hidden_.insert(name);
  return hidden_.count(name) == 0;
}

void Reporter::ReportRuns(const std::vector<Run>& runs) {
  std::vector<Run> named;
  for (const Run& run : runs) {
    if (!is_to_be_shown(run)) continue;
    named.push_back(run);
    named.back().run_name.time_type.clear();  // "/manual_time" and "/min_time:..." say nothing here
    named.back().run_name.min_time.clear();
  }
  if (!named.empty()) shown_->ReportRuns(named);
}

}  // namespace

void run_benchmarks(Ended ended) {
  Reporter reporter(std::move(ended));
  benchmark::RunSpecifiedBenchmarks(&reporter);
}

}  // namespace lockstep::kernel_bench
