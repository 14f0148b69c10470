// Results as records (docs/record_format.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/pipeline/cases.h"
#include "bench/pipeline/flags.h"
#include "bench/pipeline/result.h"
#include "core/record.h"

namespace lockstep::pipeline {

core::TimelineRecord timeline_record(const schedules::Step& step, const schedules::StepTimeline& timeline);

// A trace (schedules/step/trace.h); for an emulated or real step, with its simulation above it.
std::string trace_text(const schedules::Step& step, const schedules::StepTimeline& timeline,
                       const std::optional<Emulation>& emulation, Mode mode = Mode::emulated);

// The trace of a row; if bubbles are filled, the steps of a refresh one above the other.
std::string trace_text(const Result& result, Mode mode);

// The record of a run of this process with at most `ranks` ranks.
core::RunRecord new_run_record(const std::string& program, const std::vector<std::string>& command, Mode mode,
                               int ranks);

core::RunRecord run_record(const PipelineFlags& flags, const Cases& cases);
core::ScheduleRecord schedule_record(const core::RunRecord& run, const PipelineFlags& flags, const Case& one,
                                     const Result& result);

}  // namespace lockstep::pipeline
