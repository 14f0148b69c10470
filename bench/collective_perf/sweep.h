// A sweep from flags to exit status, and the sinks of its results: table, nccl-tests' JSON, records.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/collective_perf/flags.h"
#include "bench/collective_perf/session.h"
#include "bench/collective_perf/table.h"
#include "collectives/tuning/tuning.h"
#include "core/record.h"

namespace lockstep::sweep {

// Writes nccl-tests' JSON file (-J) with the keys of its version 3, so that scripts for one read the other. Two
// differences: `env` is empty, as an environment may hold secrets, and each result also has its ranks, transport and
// algorithm.

class NcclJson {
 public:
  // Like nccl-tests, never replaces a file: tries PATH.0, PATH.1, ... next. Throws Error if the folder is not writable.
  explicit NcclJson(const std::string& path);
  ~NcclJson();

  const std::string& path() const;  // name of the file that will be written

  // Only the first call counts, as the file has one config. nccl_version: as ncclGetVersion returns it; 0 without NCCL.
  void begin(const Heading& heading, int nccl_version);
  void add(const Row& row, const Comparison& comparison, const SweepFlags& flags);
  void add_failure(const Row& row, const std::string& error);
  void finish(const Footing& footing);  // writes the file completely or not at all

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Third step of a sweep: its outputs. The table on stdout, nccl-tests' JSON (-J) and records (--json).

// Receives a sweep's output; called in order, on the process that has rank 0.
struct SweepOutput {
  std::function<void(const std::string& text)> print;
  std::function<void(const backends::Backend&, int num_ranks, const Comparison&)> measured =
      [](const backends::Backend&, int, const Comparison&) {};
};

// Writes a sweep's results as records (docs/record_format.md). Transports that run in rotation each have a run record,
// of the same ranks; their rows follow in any order.
class Recorder {
 public:
  explicit Recorder(const std::string& path) : writer_(path) {}

  void begin_run(const core::RunRecord& run);
  void add(const Comparison& comparison);
  void add_failure(const collectives::Operation& operation, const Candidate& candidate, const std::string& error);
  void commit() { writer_.commit(); }

 private:
  const core::RunRecord& run_of(const backends::Backend& backend) const { return runs_.at(std::string(backend.name)); }
  void add_result(const core::RunRecord& run, const RowResult& result);

  core::RecordWriter writer_;
  std::map<std::string, core::RunRecord> runs_;  // by transport: its latest run
};

// All outputs, on the process that prints; other processes call only the constructor and finish().
class Sinks {
 public:
  Sinks(const SweepFlags& flags, const SweepOutput& output, const transports::MpiWorld* mpi, std::string tuning_note,
        std::optional<double> min_busbw_gbps);

  void begin(const SessionPlan& session, const std::vector<DeviceLine>& places);
  void show(const SessionPlan& session, const Comparison& comparison);
  void show_memory(const core::GpuMemoryRecord& memory);
  // Ends the files too.
  void show_failure(const SessionPlan& session, const collectives::Operation& operation, const Candidate& candidate,
                    const std::string& error);
  bool finish();  // false if a row was wrong or the bandwidth is below the minimum

 private:
  bool prints() const;
  std::string mpi_ranks_text() const;
  bool oversubscribed(const SessionPlan& session) const;
  std::vector<std::string> notes(const SessionPlan& session, const std::vector<DeviceLine>& places) const;
  std::string zero_cta_note(const SessionPlan& session) const;
  void show_heading(const SessionPlan& session, const std::vector<DeviceLine>& places);
  core::RunRecord run_record(const SessionPlan& session, const backends::Backend& backend,
                             const std::vector<DeviceLine>& places) const;
  void record(const std::function<void(Recorder&)>& write);
  Footing footing() const;

  const SweepFlags& flags_;
  const SweepOutput& output_;
  const transports::MpiWorld* const mpi_;
  const std::string tuning_note_;  // the table that `auto` reads
  const std::optional<double> min_busbw_gbps_;
  const core::Machine machine_;  // read before ranks are bound to cores
  std::optional<Recorder> recorder_;
  std::optional<NcclJson> nccl_json_;
  // Totals over the whole sweep, for the closing lines.
  int wrong_rows_ = 0;
  double busbw_gbps_ = 0;
  int placements_ = 0;
};

}  // namespace lockstep::sweep

// A whole sweep: plans every transport and number of ranks that the flags name (plan.h), runs them (session.h), and
// shows and records the results.
namespace lockstep::transports {

class MpiWorld;
}

namespace lockstep::sweep {

// Settings that are not flags; read once, at the start.
struct SweepEnvironment {
  std::optional<double> min_busbw_gbps;  // NCCL_TESTS_MIN_BW
  tuning::Table tuning;                  // empty if this machine has none
  std::string tuning_note;               // for the heading: the table that `auto` reads
  // Replaced by tests.
  std::function<const backends::Backend&(std::string_view name)> find_backend = backends::find_backend;
  std::function<core::SteadyClocks::Look(const std::vector<core::CudaDeviceInfo>&)> watch = core::watch_of;
};
SweepEnvironment read_environment(const SweepFlags& flags);

// Returns the exit status: 0, or core::Failure::wrong_data if a row was wrong or the bandwidth below the minimum.
// Throws Error for everything else; results measured before it have been printed and recorded. `mpi` is the world of a
// program under mpirun, else nullptr.
int run_sweep(const SweepFlags& flags, const SweepEnvironment& environment, transports::MpiWorld* mpi,
              const SweepOutput& output);

}  // namespace lockstep::sweep
