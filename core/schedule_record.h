// The record of a training step that was simulated, emulated or run (docs/record_format.md). Times are milliseconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::core {

// A task of a rank. -1: of no stage, no microbatch, of the whole stage.
struct TaskRecord {
  std::string lane;  // "compute"
  std::string op;    // "F"
  std::int32_t stage = -1;
  std::int32_t microbatch = -1;
  std::int32_t part = -1;
  double start_ms = 0;
  double end_ms = 0;
};
using TimelineRecord = std::vector<std::vector<TaskRecord>>;  // a list a rank

// What memory holds over time: a value from its moment on, until the next.
struct MemoryPoint {
  double time_ms = 0;
  double value = 0;
};
struct MemoryRecord {
  std::string unit;                                                      // "microbatch activations", "bytes"
  std::vector<std::map<std::string, std::vector<MemoryPoint>>> of_rank;  // by kind
};

struct StageTimesRecord {
  double forward_ms = 0;
  double input_gradient_ms = 0;
  double weight_gradient_ms = 0;
  double message_ms = 0;
};

struct BubblesRecord {
  double of_ideal = 0;
  double of_makespan = 0;
  double of_own_span = 0;
  double own_of_ideal = 0;
};

struct ClosedFormRecord {
  double cost_ms = 0;
  std::string of;  // "makespan", "own_span"
};

struct OrderingRecord {
  std::int32_t pairs = 0;
  std::int32_t pairs_out_of_order = 0;
  std::int32_t set_aside = 0;
};

// What a real step's reductions of gradients were like (ddp_overlap_bench).
struct ReductionsRecord {
  std::string compression;   // "none", "bf16", "int8"
  double backward_ms = 0;    // beside which they can travel
  double one_by_one_ms = 0;  // a step whose reductions begin when its backward has ended
  double exposed_ms = 0;     // the median over turns of step - computing alone
  std::vector<double> exposed_samples_ms;
  double sent_bytes = 0;      // by a rank, counted in plans
  double formula_bytes = 0;   // docs/metrics.md
  std::int64_t wrong = 0;     // elements
  std::string status = "ok";  // or "wrong": elements, or bytes
};

// Gradients or parameters that travel beside the computation (overlap_perf, ddp_overlap_bench).
struct OverlapRecord {
  std::int32_t layers = 0;
  std::int64_t bytes_a_layer = 0;
  std::int32_t replicas = 1;
  std::int64_t bucket_cap_bytes = 0;
  std::int32_t zero_stage = 0;
  std::int32_t prefetch = 0;
  std::string algorithm;
  std::int32_t collectives = 0;  // of a rank
  double compute_alone_ms = 0;
  double communication_alone_ms = 0;
  double efficiency = 0;  // the part of the communication that is hidden
  std::optional<ReductionsRecord> reductions = {};
};

struct ScheduleRecord {
  std::string run;
  std::string program;
  std::string schedule;
  std::optional<std::string> source;
  std::int32_t ranks = 1;
  std::int32_t microbatches = 1;
  std::int32_t chunks = 1;
  std::int32_t pipes = 1;
  std::string basis;
  std::optional<StageTimesRecord> times;
  std::optional<double> memory_limit;
  std::optional<double> w_memory;
  std::optional<double> bound_ms;
  double makespan_ms = 0;
  double own_span_ms = 0;
  std::vector<double> own_span_ms_of_rank;
  double work_ms = 0;
  BubblesRecord bubbles;
  std::vector<double> peak_until_w;
  std::vector<double> peak_until_b;
  std::vector<std::int64_t> sends;
  std::vector<std::int32_t> weight_versions;                              // none: null
  std::vector<std::pair<std::string, std::optional<std::string>>> hangs;  // by transport; nothing: comes to its end
  OrderingRecord ordering;
  std::optional<ClosedFormRecord> closed_form;
  std::vector<double> exposed_ms;
  std::vector<double> samples_ms;  // `stats` of the line is summarize(samples_ms)
  std::optional<double> late_us;
  std::optional<double> simulated_ms;  // of an emulated or measured run: what the simulator says
  TimelineRecord timeline;
  std::optional<MemoryRecord> memory;
  std::optional<OverlapRecord> overlap;
};

// One line of JSON without its newline; for RecordWriter.
std::string to_json(const ScheduleRecord& record);

}  // namespace lockstep::core
