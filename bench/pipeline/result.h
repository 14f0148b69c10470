// The costs of a schedule: counted from its lists, and from the timeline of its tasks.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/pipeline/cases.h"
#include "core/record.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
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

// Runs a schedule with real kernels: the trainer runs it on the stages of a GPT.

// Times of a microbatch on a rank's share, in ms: medians of one rank alone on the machine.
schedules::Times isolated_times_ms(const PipelineFlags& flags);

// Share of a stage's activations that its weight gradients still need after the input gradients.
double kept_share_for_w(const PipelineFlags& flags);

// `step`: the schedule's step, with one task per action; the timeline is of these tasks. The trainer's other work (the
// gradient norm, the update, with two pipes the sums over a stage's copies) is not included; an action lasts from its
// first piece to its last. Schedules that keep several versions of the weights run with one.
EmulatedRuns run_real(const schedules::Schedule& schedule, const schedules::Step& step, const PipelineFlags& flags);

// Work in the bubbles of a pipeline: the steps with that work, and the share of the bubbles that it fills.

// Puts the work of flags.filler into the bubbles of a step, and simulates each of the steps that this takes. They take
// as long as the step with empty bubbles, which is checked. Throws a usage Error if a kernel of the work is longer than
// every bubble of its rank.
Filled fill(const Case& one, const PipelineFlags& flags, const schedules::Step& plain);

// The steps of a refresh concatenated, for drawings.
core::TimelineRecord timeline_record(const Filled& filled);

// Held activations over time.

// Activations of each rank, in microbatches of its share, including those held for another rank: "until_b", from the
// start of F to the end of B or I, plus "until_w", the share that I leaves for W.
core::MemoryRecord activations_over_time(const schedules::Schedule& schedule, const schedules::Step& step,
                                         const schedules::StepTimeline& timeline, double w_share);

}  // namespace lockstep::pipeline
