// The text output of pipeline_perf, as pure functions of the results.
#pragma once

#include <string>
#include <vector>

#include "bench/pipeline/cases.h"
#include "bench/pipeline/flags.h"
#include "bench/pipeline/result.h"

namespace lockstep::pipeline {

std::string heading_text(const PipelineFlags& flags, const Cases& cases);
// The column names and their units.
std::string columns_text(const PipelineFlags& flags, const Case& one, const Result& result);
std::string row_text(const PipelineFlags& flags, const Case& one, const Result& result);
// Relative differences of emulated or real rows from simulated ones.
class Agreement {
 public:
  explicit Agreement(Mode mode) : mode_(mode) {}
  void add(const Case& one, const Result& result);
  std::string text() const;  // one line; empty for fewer than two rows

 private:
  Mode mode_;
  std::vector<double> shares_;  // emulated / simulated - 1
  double worst_ = 0;
  std::string worst_name_;
};

// The actions at which ranks deadlock, one line per kind of channel. Empty if none do.
std::string footing_text(const Case& one, const Result& result);

}  // namespace lockstep::pipeline
