// Output of pipeline_perf and overlap_perf: tables and records.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/pipeline_perf/cases.h"
#include "bench/program/program.h"
#include "core/record.h"
#include "schedules/step/breakdown.h"

namespace lockstep::pipeline {

// A trace (schedules/step/traces.h); for an emulated or real step, with its simulation above it.
std::string trace_text(const schedules::Step& step, const schedules::StepTimeline& timeline,
                       const std::optional<Emulation>& emulation, Mode mode = Mode::emulated);

// The trace of a row; if bubbles are filled, the steps of a refresh one above the other.
std::string trace_text(const Result& result, Mode mode);

core::RunRecord run_record(const PipelineFlags& flags, const Cases& cases);
core::ScheduleRecord schedule_record(const core::RunRecord& run, const PipelineFlags& flags, const Case& one,
                                     const Result& result);

// The text output of pipeline_perf, as pure functions of the results.

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
