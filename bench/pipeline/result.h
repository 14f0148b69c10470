// The costs of a schedule: counted from its lists, and from the timeline of its tasks.
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

// Channels over which the lists run to their end; a text has the actions at which ranks are blocked.
using Verdicts = std::vector<std::pair<std::string, std::optional<std::string>>>;

struct Emulation {
  std::vector<double> samples_ms;                 // wall-clock makespans, one per run
  schedules::StepTimeline simulated_timeline;     // for comparison with the emulated one
  double late_us = 0;                             // largest delay with which a task began
  std::optional<core::EnergyRecord> energy = {};  // real steps only
  std::string energy_text = {};                   // one line, also without counters; empty for emulated steps
};

// Bubbles with work in them (--fill), over a refresh: the steps that do all of the work once.
struct Filled {
  schedules::Step without;  // with preconditioning and empty bubbles
  std::vector<schedules::Step> steps;
  std::vector<schedules::StepTimeline> timelines;  // simulated
  double makespan_without_ms = 0;  // with empty bubbles: simulated, equal to each step; emulated, the median
  double filled = 0;               // share of the bubbles' time
  double utilization = 0;          // share of the steps in which ranks compute
  double utilization_without = 0;  // the same for a step without the work
};

struct Result {
  schedules::Step step;
  schedules::StepTimeline timeline;  // emulated: that of the run with the median makespan
  schedules::Spans spans;            // in ms
  schedules::Bubbles bubbles;
  std::vector<schedules::RankCounts> counts;
  schedules::Ordering ordering;
  Verdicts hangs;
  std::optional<schedules::ClosedForm> closed_form;  // in ms; only if messages take no time
  std::optional<double> bound_ms;                    // lower bound of the own span; for one chunk per rank
  std::vector<double> exposed_ms;                    // per rank
  double simulated_ms = 0;                           // makespan in virtual time
  std::optional<Emulation> emulation;
  std::optional<Filled> filled;
};

// The size of an eviction encodes its time; a message between stages takes only the latency.
inline constexpr simulator::Link kEvictionLink{.ps_per_byte = 1};

Result run_case(const Case& one, const PipelineFlags& flags);

// True if a rank holds more microbatches' activations than the limit.
bool is_over_memory(const Result& result, const PipelineFlags& flags);

// Runs a step on emulated devices, several times.
struct EmulatedRuns {
  Emulation emulation;
  schedules::StepTimeline timeline;  // run with the median makespan (the longer of two, for an even number of runs)
};
EmulatedRuns emulate(const schedules::Step& step, const simulator::EmulationOptions& options, int repeat);

}  // namespace lockstep::pipeline
