// Output of pipeline_perf and overlap_perf: tables and records.
#pragma once

#include <string>
#include <vector>

#include "bench/pipeline_perf/cases.h"
#include "bench/program/columns.h"
#include "bench/program/program.h"
#include "core/record.h"
#include "schedules/step/breakdown.h"

namespace lockstep::pipeline {

// A trace (schedules/step/traces.h); for an emulated or real step, with its simulation above it.
std::string trace_text(const TimedStep& timed, Mode mode);
// Adds samples, exposed time and the timeline to the record of a step with this makespan.
void add_times(const TimedStep& timed, core::ScheduleRecord& record);

// The trace of a row; if bubbles are filled, the steps of a refresh one above the other.
std::string trace_text(const Result& result, Mode mode);

core::RunRecord run_record(const PipelineFlags& flags, const Cases& cases);
core::ScheduleRecord schedule_record(const core::RunRecord& run, const PipelineFlags& flags, const Case& bench_case,
                                     const Result& result);

// The text output of pipeline_perf, as pure functions of the results.

std::string heading_text(const PipelineFlags& flags, const Cases& cases);
struct Row {
  const PipelineFlags& flags;
  const Case& one;
  const Result& result;
};
std::vector<program::Column<Row>> columns(const PipelineFlags& flags);
// Relative differences of emulated or real rows from simulated ones.
class Agreement {
 public:
  explicit Agreement(Mode mode) : mode_(mode) {}
  void add(const Case& bench_case, const Result& result);
  std::string text() const;  // one line; empty for fewer than two rows

 private:
  Mode mode_;
  std::vector<double> shares_;  // emulated / simulated - 1
  double worst_ = 0;
  std::string worst_name_;
};

// The actions at which ranks deadlock, one line per kind of channel. Empty if none do.
std::string footing_text(const Case& bench_case, const Result& result);

}  // namespace lockstep::pipeline
