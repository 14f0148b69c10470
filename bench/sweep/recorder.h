// Writes a sweep's results as records (docs/record_format.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/sweep/session.h"
#include "core/device_cuda.h"
#include "core/gpu_record.h"
#include "core/record.h"

namespace lockstep::sweep {

// What a run is, beyond its flags.
struct RunFacts {
  int num_ranks = 1;
  std::string transport;
  std::string rank_kind;  // "threads", "processes", "mpi"
  bool oversubscribed = false;
  core::Machine machine;
  std::map<std::string, std::string> libraries;  // name to version, as in core::RunRecord
  std::optional<core::GpuRecord> gpu;            // of ranks on GPUs
  std::vector<core::CudaDeviceInfo> gpu_devices = {};
};

class Recorder {
 public:
  explicit Recorder(const std::string& path) : writer_(path) {}

  // Transports that take turns have a run each, of the same ranks; their rows follow in any order.
  void begin_run(const SweepFlags& flags, const RunFacts& facts);
  void add(const Comparison& comparison);
  void add_failure(const collectives::Operation& operation, const Contender& contender, const std::string& error);
  void commit() { writer_.commit(); }

 private:
  const core::RunRecord& run_of(const backends::Backend& backend) const { return runs_.at(std::string(backend.name)); }
  void add_result(const core::RunRecord& run, const RowResult& result);

  core::RecordWriter writer_;
  std::map<std::string, core::RunRecord> runs_;  // by transport: the last
  std::optional<core::GpuWatch> watch_;          // of the last
};

}  // namespace lockstep::sweep
