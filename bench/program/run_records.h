// Records of runs and of the steps that they time (docs/record_format.md), as several programs write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/program/program.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"
#include "core/record.h"
#include "schedules/step/breakdown.h"

namespace lockstep::program {

// The record of a run of this process with at most `ranks` ranks. `basis`: simulated, emulated or measured.
core::RunRecord new_run_record(const Invocation& flags, const std::string& basis, int ranks);
// The record of a run with real kernels on `ranks` ranks of `threads` threads each; emulated if links join them.
core::RunRecord real_run_record(const Invocation& flags, int ranks, int threads, std::uint64_t seed,
                                const std::optional<transports::LinkSpec>& link = {});

// A record of a step, or a part of one, with the fields that all have.
core::StepRecord new_step_record(const core::RunRecord& run, const std::string& part, int ranks, int threads,
                                 core::DType dtype);
// Adds the numbers as "group.name".
void add_group(const std::string& group, const core::NamedNumbers& numbers, core::NamedNumbers& to);
// Marks it as wrong unless `wrong` is empty.
void set_error(const std::string& wrong, core::StepRecord& record);

// The parts of one rank's step with the names that records and tables use, in display order; their sum is the step.
std::vector<std::pair<std::string, std::int64_t>> named_parts(const schedules::Breakdown& parts);
// The mean of all ranks, in milliseconds.
std::vector<std::pair<std::string, double>> mean_parts_ms(const std::vector<schedules::Breakdown>& ranks);

// The record of a step that replicas of a model take, each a pipe of one stage: all begin and end together.
core::ScheduleRecord replicas_record(const core::RunRecord& run, std::int32_t replicas, std::int32_t microbatches,
                                     double step_ms, double kernels_ms);

core::TimelineRecord timeline_record(const schedules::Step& step, const schedules::StepTimeline& timeline);

}  // namespace lockstep::program
