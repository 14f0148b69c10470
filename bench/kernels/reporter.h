// Google Benchmark's own table, JSON or CSV on the terminal, and word of each benchmark as soon as it has ended.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace lockstep::kernel_bench {

// Called once a benchmark, when all its repetitions are done. False: it is not to be shown.
using Ended = std::function<bool(const std::string& name, std::size_t repetitions)>;

class Reporter final : public benchmark::BenchmarkReporter {
 public:
  explicit Reporter(Ended ended);
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

}  // namespace lockstep::kernel_bench
