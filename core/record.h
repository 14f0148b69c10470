// Records: what a run was and what it measured, as lines of JSON. docs/record_format.md says what each field means and
// in which unit; the names here are the names there. A field that is not known is left empty and becomes null.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/provenance.h"
#include "core/record_file.h"

namespace lockstep::core {

struct LinkRecord {
  std::optional<double> latency_us;
  std::optional<double> gbps;  // 1e9 bytes a second each way
};

// One GPU, as NVML shows it; what it does not tell is empty.
struct GpuDeviceRecord {
  std::string pci_id;  // "0000:1b:00.0"
  std::optional<double> power_limit_watts;
  std::optional<bool> mig;
  std::optional<bool> mps;
};

// How ranks are on GPUs; the models are in the machine, versions in the libraries.
struct GpuRecord {
  int gpus = 1;           // that a process sees
  int ranks_per_gpu = 1;  // the most
  std::string label;      // "shared GPU" where ranks share one, else "a GPU a rank"
  std::optional<double> clock_mhz;
  std::vector<GpuDeviceRecord> devices = {};
};

// A GPU right after a measurement: whether its clocks were held back.
struct GpuStateRecord {
  std::string pci_id;
  std::optional<double> sm_mhz;
  std::optional<double> memory_mhz;
  std::optional<double> temperature_c;
  std::optional<double> power_watts;
  std::optional<std::vector<std::string>> clock_limits;  // "power cap", "hardware thermal", "idle", ...
};

struct RunRecord {
  std::string run;  // new_run_id()
  std::string program;
  std::vector<std::string> command;  // as given; folders are taken away when it is written
  std::string started;               // utc_now()
  Source source;
  Build build;
  Machine machine;
  std::map<std::string, std::string> libraries;  // "mpi": "Open MPI 4.1.4"
  int ranks = 1;
  std::string transport;  // "local", "mpi", "cuda", "nccl"
  std::string rank_kind;  // "threads", "processes", "mpi"
  bool oversubscribed = false;
  std::optional<std::uint64_t> seed;
  std::optional<LinkRecord> link;
  std::optional<GpuRecord> gpu;    // of ranks on GPUs
  std::string basis = "measured";  // or "emulated", "simulated"
};

struct PlanRecord {
  std::int64_t steps = 0;
  std::int64_t wire_bytes_max = 0;
  std::int64_t wire_bytes_total = 0;
  std::optional<double> predicted_us;
};

struct RowRecord {
  std::string run;
  std::string collective;
  std::string algorithm;
  std::string executor;  // "direct", "message", "library"
  std::string transport;
  int ranks = 1;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  std::string dtype;
  std::string op = "none";
  int root = -1;
  bool in_place = false;
  std::string basis = "measured";
  std::string status = "ok";  // or "wrong", "failed"
  std::optional<std::string> error;
  std::optional<std::int64_t> wrong;
  std::int64_t iterations = 0;
  std::optional<double> time_us;
  std::optional<double> queued_us;  // the host's part of it, of ranks on GPUs
  int graph_iterations = 0;         // in a CUDA graph, a sample is a replay of it; 0: no graph
  std::optional<double> algbw_gbps;
  std::optional<double> busbw_gbps;
  std::vector<double> samples_us;  // `stats` of the line is summarize(samples_us)
  std::optional<PlanRecord> plan;
  std::vector<GpuStateRecord> gpu_states = {};  // of ranks on GPUs
};

struct OperandRecord {
  std::string name;
  std::string access;  // "read", "write", "update"
  std::string dtype;
  std::int64_t bytes = 0;
};

struct KernelRecord {
  std::string run;
  std::string kernel;
  std::string shape;
  std::string dtype;
  std::string device = "cpu";  // or "cuda"
  int threads = 1;
  std::vector<int> cores;       // on which each thread was seen; none on a GPU
  std::string cache = "warm";   // or "cold"
  std::string timing = "host";  // or "events", "graph"
  std::optional<std::string> implementation;
  std::string basis = "measured";
  std::string status = "ok";  // or "wrong", "failed"
  bool checked = false;
  std::optional<std::string> error;
  double flops = 0;
  double bytes = 0;
  std::vector<OperandRecord> operands;
  std::int64_t iterations = 0;
  std::optional<double> time_us;
  std::vector<double> samples_us;
  std::optional<double> gbps;
  std::optional<double> gflops;
  std::optional<std::string> bound;  // "memory", "compute", "launch"
  std::optional<double> ceiling_us;
  std::optional<double> share;
  std::vector<GpuStateRecord> gpu_states = {};
};

struct CeilingRecord {
  std::string run;
  std::string device = "cpu";
  int threads = 1;
  std::string name;                  // "copy", "read", "triad", "fma", "gemm", "launch"
  std::optional<std::string> level;  // "l1", "l2", "l3", "memory"
  std::optional<std::string> dtype;
  double value = 0;
  std::string unit;  // "gbps", "gflops", "us"
  std::vector<double> samples;
};

// One line of JSON without its newline.
std::string to_json(const RunRecord& run);
std::string to_json(const RowRecord& row);
std::string to_json(const KernelRecord& kernel);
std::string to_json(const CeilingRecord& ceiling);

// Writes a record file, each record as soon as it is known: whatever stops the program, also a signal that cannot be
// caught, leaves the records of all that was done before, in a file that is named partial (core/record_file.h).
class RecordWriter {
 public:
  explicit RecordWriter(const std::string& path) : file_(path) {}
  template <class Record>
  void write(const Record& record) {
    file_.write_line(to_json(record));
  }
  // In place of the last: of a result that grows as its program runs.
  template <class Record>
  void rewrite(const Record& record) {
    file_.rewrite_line(to_json(record));
  }
  void commit() { file_.commit(); }

 private:
  RecordFile file_;
};

}  // namespace lockstep::core
