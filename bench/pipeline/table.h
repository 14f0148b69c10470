// The text that pipeline_perf prints, as pure functions of the results.
#pragma once

#include <string>
#include <vector>

#include "bench/pipeline/cases.h"
#include "bench/pipeline/flags.h"
#include "bench/pipeline/result.h"

namespace lockstep::pipeline {

std::string heading_text(const PipelineFlags& flags, const Cases& cases);
// The names of the columns, and their units.
std::string columns_text(const PipelineFlags& flags, const Case& one, const Result& result);
std::string row_text(const PipelineFlags& flags, const Case& one, const Result& result);
// How far emulated or real rows are from simulated ones.
class Agreement {
 public:
  explicit Agreement(Mode mode) : mode_(mode) {}
  void add(const Case& one, const Result& result);
  std::string text() const;  // a line; empty where there are not several

 private:
  Mode mode_;
  std::vector<double> shares_;  // emulated over simulated, less 1
  double worst_ = 0;
  std::string worst_name_;
};

// Where the ranks stand that wait for each other for ever, a line a transport. Empty: nowhere.
std::string footing_text(const Case& one, const Result& result);

}  // namespace lockstep::pipeline
