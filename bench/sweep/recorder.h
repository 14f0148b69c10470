// Writes a sweep's results as records (docs/record_format.md).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "bench/sweep/session.h"
#include "core/record.h"

namespace lockstep::sweep {

// What a run is, beyond its flags.
struct RunFacts {
  int num_ranks = 1;
  std::string transport;
  std::string executor;   // of plans; empty where there are none
  std::string rank_kind;  // "threads", "processes", "mpi"
  bool oversubscribed = false;
  core::Machine machine;
  std::map<std::string, std::string> libraries;  // name to version, as in core::RunRecord
  std::optional<core::GpuRecord> gpu;            // of ranks on GPUs
};

class Recorder {
 public:
  explicit Recorder(const std::string& path) : writer_(path) {}

  void begin_run(const SweepFlags& flags, const RunFacts& facts);
  void add(const Comparison& comparison);
  void add_failure(const collectives::Operation& operation, const std::string& algorithm, const std::string& error);
  void commit() { writer_.commit(); }

 private:
  core::RowRecord row_of(const collectives::Operation& operation) const;
  void add_result(const RowResult& result);

  core::RecordWriter writer_;
  core::RunRecord run_;
  std::string executor_;  // of plans
};

}  // namespace lockstep::sweep
