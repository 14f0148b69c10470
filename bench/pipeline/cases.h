// The command line of pipeline_perf and the cases that it names.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/place/place.h"
#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "schedules/generators/catalogue.h"
#include "schedules/play.h"
#include "schedules/schedule.h"

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

// Work for the bubbles, on a rank's share of the model, in ms (schedules/passes/fill_bubbles.h).
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
  std::optional<double> w_memory;       // share of them held from I until W; default with real kernels: as measured
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
  schedules::PipelineShape shape;               // requested shape, or that of the file
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

}  // namespace lockstep::pipeline
