// pipeline_perf: its flags, the schedules that they ask for, and the costs of each: counted from its lists, and from
// the timeline of its tasks.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/program/place.h"
#include "bench/program/program.h"
#include "core/record.h"
#include "schedules/generators/catalogue.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "simulator/emulated/emulated_run.h"
#include "simulator/engine/engine.h"
#include "simulator/engine/filled.h"

namespace lockstep::pipeline {

// The command line of pipeline_perf.

inline constexpr double kPsPerMs = 1e9;  // picoseconds per millisecond

inline std::int64_t ps_of(double ms) {
  return std::llround(ms * kPsPerMs);
}

enum class Mode : std::uint8_t { simulated, emulated, real };
std::string name_of(Mode mode);  // as on the command line
Mode mode_of(const program::FlagValue& value);
std::string basis_of(Mode mode);  // as in records: "measured" if kernels are real

// The model of real kernels: the stages of a GPT (trainer/model/gpt_stage.h) on bytes.
struct RealModel {
  int layers = 2;  // per rank
  int hidden = 128;
  int heads = 4;
  int length = 64;  // tokens per sequence
  int batch = 1;    // sequences per microbatch
  std::string dtype = "f32";
};

// Work for the bubbles, on a rank's share of the model, in ms (schedules/passes/passes.h).
struct FillerWork {
  double input_curvature = 0;   // per microbatch, after its forward
  double output_curvature = 0;  // per microbatch, after its backward
  double inversion = 0;         // inversions of both, once per refresh
  double work = 0;              // anything else, once per refresh
  double precondition = 0;      // in every step after the gradients; not in bubbles
  int layers = 1;               // kernels into which each kind of work is divided
  bool given() const { return input_curvature + output_curvature + inversion + work > 0; }
};

struct PipelineFlags : program::Invocation {
  Mode mode = Mode::simulated;

  // Swept lists, in this order of nesting: every combination is a row.
  std::vector<int> stages{4};  // ranks of the pipeline
  bool all_ranks = true;       // use all ranks of mpirun, as --stages was not given
  std::vector<int> microbatches{8};
  std::vector<std::string> schedules{"1f1b"};  // names, or "all"
  std::optional<int> chunks;                   // for schedules that take chunks
  std::optional<int> slices;                   // for schedules that take token slices
  bool balanced_slices = false;                // slices of equal times; false: of equal lengths
  std::string csv_file;                        // replaces `schedules`
  int pipes = 1;                               // pipes of the CSV

  FillerWork filler;
  schedules::Times times_ms;  // with real kernels: measured on one rank alone on the machine
  RealModel model;
  program::PlaceFlags place;            // for real kernels
  transports::MpiWorld* mpi = nullptr;  // --transport mpi, once it is started
  double evict_ms = 0;                  // time to move a microbatch's activations of a stage to another rank, or back
  std::optional<double> memory_limit;   // microbatches whose activations a rank may hold
  std::optional<double> w_memory;  // share of activations held from I until W; default with real kernels: as measured
  double w_share() const { return w_memory.value_or(1); }
  int repeat = 5;      // runs of an emulated schedule
  int timeout_s = 60;  // for every wait of an emulated or real run

  std::string dump_csv_file;  // empty: none
  std::string trace_file;     // empty: none
  bool lowered = false;       // the dumped CSV has its messages
  bool list = false;          // list the schedules and exit
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
PipelineFlags parse_pipeline_flags(int argc, const char* const* argv);

// The schedules that the flags ask for: one case per row of the table.

struct Case {
  std::string name;                             // the schedule's name, or the file's name
  schedules::Schedule schedule;                 // computations only
  schedules::Schedule messages;                 // with messages: the file's own, if it has any
  schedules::PipelineShape shape;               // requested shape, or the file's
  const schedules::CatalogueEntry* entry = {};  // null for files and searches
  std::optional<std::string> source;
  std::optional<double> memory_limit = {};  // limit of the search, in microbatches' activations
};

struct Cases {
  std::vector<Case> all;
  std::vector<std::string> left_out;  // invalid shapes (--schedule all) or actions that are not run (--csv), and why
};

// Makes and checks all schedules. Throws a usage Error for unknown names, invalid shapes and incorrect files.
Cases make_cases(const PipelineFlags& flags);

// The text of --list: one line per schedule, with its source.
std::string list_text();

// The costs of a schedule: counted from its lists, and from the timeline of its tasks.

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
struct Filled : simulator::FilledSteps {
  schedules::Step without;         // with preconditioning and empty bubbles
  double makespan_without_ms = 0;  // with empty bubbles: simulated, equal to each step; emulated, the median
  double utilization_without = 0;  // the same for a step without the work
};

// A step that was simulated, and emulated or run as well.
struct TimedStep {
  schedules::Step step;
  schedules::StepTimeline timeline;  // emulated: from the run with the median makespan
  double simulated_ms = 0;           // makespan in virtual time
  std::optional<Emulation> emulation;
};

struct Result : TimedStep {
  schedules::Spans spans;  // in ms
  schedules::Bubbles bubbles;
  std::vector<schedules::RankCounts> counts;
  schedules::Ordering ordering;
  Verdicts hangs;
  std::optional<schedules::ClosedForm> closed_form;  // in ms; only if messages take no time
  std::optional<double> bound_ms;                    // lower bound of the own span; for one chunk per rank
  std::optional<Filled> filled;
};

// The size of an eviction encodes its time; a message between stages takes only the latency.
inline constexpr simulator::Link kEvictionLink{.ps_per_byte = 1};

Result run_case(const Case& bench_case, const PipelineFlags& flags);

// True if a rank holds more microbatches' activations than the limit.
bool is_over_memory(const Result& result, const PipelineFlags& flags);

// Runs a step on emulated devices, several times.
struct EmulatedRuns {
  Emulation emulation;
  schedules::StepTimeline timeline;  // run with the median makespan (the longer of two, for an even number of runs)
};
EmulatedRuns emulate(const schedules::Step& step, const simulator::EmulationOptions& options, int repeat);
// Adds these to the simulated timeline.
void add_runs(EmulatedRuns runs, TimedStep& timed);

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
Filled fill(const Case& bench_case, const PipelineFlags& flags, const schedules::Step& plain);

// The steps of a refresh concatenated, for drawings.
core::TimelineRecord timeline_record(const Filled& filled);

// Held activations over time.

// Activations of each rank, in microbatches of its share, including those held for another rank: "until_b", from the
// start of F to the end of B or I, plus "until_w", the share that I leaves for W.
core::MemoryRecord activations_over_time(const schedules::Schedule& schedule, const schedules::Step& step,
                                         const schedules::StepTimeline& timeline, double w_share);

}  // namespace lockstep::pipeline
