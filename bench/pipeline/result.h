// The costs of a schedule: counted from its lists, and from when its tasks ran.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/pipeline/cases.h"
#include "core/record.h"
#include "schedules/count.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"
#include "simulator/emulated/emulated_run.h"
#include "simulator/engine/links.h"

namespace lockstep::pipeline {

// Over which channels the lists come to their end; text: where the ranks stand that do not.
using Verdicts = std::vector<std::pair<std::string, std::optional<std::string>>>;

struct Emulation {
  std::vector<double> samples_ms;                 // wall-clock makespans, a run each
  schedules::StepTimeline simulated_timeline;     // beside that of the emulation
  double late_us = 0;                             // by which a task was begun late, at worst
  std::optional<core::EnergyRecord> energy = {};  // of real steps
  std::string energy_text = {};                   // a line, also where there is none; empty: of emulated ones
};

// Bubbles with work in them (--fill): of steps that do all of it once, a refresh.
struct Filled {
  schedules::Step without;  // precondition in it, and bubbles empty
  std::vector<schedules::Step> steps;
  std::vector<schedules::StepTimeline> timelines;  // simulated
  double makespan_without_ms = 0;  // with empty bubbles: simulated as long as each of the steps; emulated: the median
  double filled = 0;               // of these bubbles' time
  double utilization = 0;          // the part of the steps in which ranks compute
  double utilization_without = 0;  // of a step with none of the work
};

struct Result {
  schedules::Step step;
  schedules::StepTimeline timeline;  // of an emulated schedule: of the run with the median makespan
  schedules::Spans spans;            // in ms
  schedules::Bubbles bubbles;
  std::vector<schedules::RankCounts> counts;
  schedules::Ordering ordering;
  Verdicts hangs;
  std::optional<schedules::ClosedForm> closed_form;  // in ms; only without time for messages
  std::optional<double> bound_ms;                    // own span of no schedule is shorter; of one chunk a rank
  std::vector<double> exposed_ms;                    // of each rank
  double simulated_ms = 0;                           // makespan in virtual time
  std::optional<Emulation> emulation;
  std::optional<Filled> filled;
};

// An eviction has a byte for each picosecond that its move takes; a message between stages takes latency alone.
inline constexpr simulator::Link kEvictionLink{.ps_per_byte = 1};

Result run_case(const Case& one, const PipelineFlags& flags);

// A rank holds more microbatches' activations than it may.
bool is_over_memory(const Result& result, const PipelineFlags& flags);

// A step on emulated devices, several times over.
struct EmulatedRuns {
  Emulation emulation;
  schedules::StepTimeline timeline;  // of the run with the median makespan; of an even number, the longer of the two
};
EmulatedRuns emulate(const schedules::Step& step, const simulator::EmulationOptions& options, int repeat);

}  // namespace lockstep::pipeline
