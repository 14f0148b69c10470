// The command line of a sweep: nccl-tests' flags and ours, and the sizes that they name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/program/program.h"
#include "collectives/backends/backend.h"
#include "collectives/collective.h"

namespace lockstep::sweep {

// Sizes that a sweep visits, and the elements per block at each: nccl-tests' rules.

struct SizeRange {
  std::int64_t min_bytes = std::int64_t{32} << 20;
  std::int64_t max_bytes = std::int64_t{32} << 20;
  std::int64_t step_bytes = std::int64_t{1} << 20;
  int step_factor = 1;  // if above 1, step_bytes is ignored
};

std::vector<std::int64_t> sizes_of(const SizeRange& range);

// Elements per block for a message of `size_bytes`: if a rank's input or output has a block for each rank, the size is
// divided among them and rounded down to a multiple of 16 bytes (so it is 0 below 16 bytes per rank).
std::int64_t block_count(collectives::Kind kind, std::int64_t size_bytes, core::DType dtype, int num_ranks);

// nccl-tests' flags that have a meaning on GPUs only, and the transports that understand them.

// Points at which the host waits within a batch of calls (-z).
enum class Blocking : std::uint8_t {
  none,              // after the batch
  call_and_barrier,  // after every call, and then for the other ranks
  call,
  iteration,  // after every iteration; then for the other ranks, outside of the timed part
};

struct DeviceFlags {
  // -G: iterations are captured into a CUDA graph, and the graph is replayed this often; 0: no graph
  int graph_launches = 0;
  bool report_cpu_time = false;  // -C: the time column is the host's time to enqueue a call
  Blocking blocking = Blocking::none;
  int registration = 0;           // -R: buffers are registered with NCCL: 1 locally, 2 as symmetric windows
  std::string protocol = "auto";  // transport cuda: auto, simple or packets
  int blocks = 0;                 // --blocks: most thread blocks per rank and collective; 0: the default of places.h
  bool reports_memory = false;    // -M: report the GPU memory that joining, buffers and calls take
  bool null_stream = false;       // -y: enqueue calls on CUDA's NULL stream
  libraries::NcclConfig nccl;     // -x, --min-ctas, --max-ctas, --cga-cluster-size, --net, --split-share
};

// True if the table of backends has it on GPUs; false for "simulated", which is not a backend.
inline bool on_gpus(std::string_view transport) {
  return backends::is_backend(transport) && backends::find_backend(transport).on_gpus();
}

// Throws a usage Error of one line that names the flag, the transport that does not support it, and the reason.
void check_device_flags(const DeviceFlags& flags, const std::vector<std::string>& transports);

// Command line of the *_perf programs: flags, names and defaults of nccl-tests 2.19.6, and those that Lockstep adds.
// Flags that have no meaning here, or not for the chosen transport, are accepted at nccl-tests' default and otherwise
// refused with the reason.
//
// Ranks are threads of one process: --ranks, or nccl-tests' -t times -g, or 4. Under mpirun each process has -t times
// -g ranks, one by default. On GPUs each rank of -t times -g has a GPU of its own, as in nccl-tests; ranks of --ranks
// are spread over the GPUs. Simulated ranks are devices of the machine that --machine describes.

using program::FlagValue;

// Transport that moves no bytes: plans run in virtual time on a described machine (session.h).
inline constexpr std::string_view kSimulated = "simulated";

// Ranks over which the time of a call is taken (-a).
enum class TimeOf : std::uint8_t { rank0, mean, min, max };

struct SweepFlags : program::Invocation {
  collectives::Kind kind = collectives::Kind::all_reduce;

  // Swept in this order of nesting: every combination is a row.
  std::vector<int> ranks{4};
  std::vector<std::string> transports{"local"};  // names of backends, or kSimulated alone
  // machine that simulated ranks run on: a name or the file of a description
  std::string machine;
  std::vector<core::DType> dtypes{core::DType::f32};
  std::vector<core::ReduceOp> ops{core::ReduceOp::sum};  // one entry if the collective has no reduction
  std::vector<int> roots{0};                             // empty: every root (-r -1); {0} if the collective has no root
  SizeRange sizes;
  std::vector<std::string> algorithms{"auto"};  // "name:key=value", "all" or "auto"; see algorithms::parse_choice

  std::vector<std::string> plan_files;  // --plan: the user's own plans; without --algo only they run
  bool print_plan = false;              // print or draw the plans that would run, and run nothing
  bool print_msccl = false;             // likewise, the one plan as MSCCL XML
  bool draw = false;
  bool only_shows_plans() const { return print_plan || print_msccl || draw; }

  bool ranks_given = false;  // by --ranks, -t or -g
  int threads = 0;           // per process: -t and -g as given; 1 if only the other one is given; 0 if neither is
  int gpus_per_thread = 0;
  int ranks_per_process() const { return threads > 0 ? threads * gpus_per_thread : 1; }  // in each process of mpirun
  bool processes = false;  // local ranks are forked processes instead of threads
  int iterations = 20;
  int warmup_iterations = 1;
  int calls_per_iteration = 1;
  int run_cycles = 1;
  TimeOf time_of = TimeOf::mean;
  bool check = true;
  bool per_iteration_timing = false;
  int per_iteration_skip = 0;
  bool timestamps = false;
  int timeout_s = 60;     // timeout of every wait
  int unalign_elems = 0;  // elements by which both buffers are shifted
  DeviceFlags device;

  bool explain = false;
  bool serve = false;  // be a worker of ci/gate.py (bench/serve/orders.h) instead of measuring
  bool stats = false;
  std::string nccl_json_file;  // -J; empty: none
  double time_budget_s = 0;    // time budget of the whole run; 0: none
  // Set by bench/tune, which wants only the fastest; no flag. Rows are out of place, and an algorithm that is clearly
  // slower than the fastest so far is timed no further (racing: Maron and Moore, "Hoeffding Races", NIPS 1993).
  bool race = false;
  std::string link;  // empty: not emulated; else for transports::parse_link
  std::uint64_t seed = 1;
};

// nccl-tests' name of the program that times a collective, such as "all_reduce_perf", and the inverse, which throws a
// usage Error for another name.
std::string_view program_of_kind(collectives::Kind kind);
collectives::Kind kind_of_program(std::string_view program);

// Roots to run at this number of ranks. Throws a usage Error if one is not a rank.
std::vector<int> roots_at(const SweepFlags& flags, int num_ranks);

// `transport` is the default for a command line that names none. Throws a usage Error of one line that names the flag,
// its value and what is allowed.
SweepFlags parse_sweep_flags(collectives::Kind kind, int argc, const char* const* argv,
                             const std::string& transport = "local");

// Reads NCCL_TESTS_MIN_BW, nccl-tests' regression gate: an average busbw (GB/s) below 0.9 of this value fails the run.
// Call it once, at the start. Throws a usage Error if the value is not a number.
std::optional<double> min_busbw_of_environment();

}  // namespace lockstep::sweep
