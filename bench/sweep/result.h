// Results of a row after it has been measured, the same on every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/sweep/flags.h"
#include "bench/sweep/trial.h"
#include "core/record.h"

namespace lockstep::sweep {

// Properties of a plan that are known before anything runs.
struct PlanFacts {
  int steps;                                // messages on the longest chain
  std::int64_t wire_bytes_max;              // sent by the busiest rank
  std::int64_t wire_bytes_total;            // sent by all
  std::optional<double> predicted_us = {};  // if alpha and beta were measured, or the links are specified
  // Emulated links only: the part of the prediction that the links cause, and the least time in which this machine's
  // memory moves the bytes that all ranks read and write. If memory_us exceeds the prediction, the row measures the
  // memory, not the links.
  std::optional<double> links_us = {};
  std::optional<double> memory_us = {};
};

// GPU memory that a session has taken so far, by all ranks on the GPU from which most is taken.
struct GpuMemory {
  std::size_t joining_bytes = 0;  // for communicators and working memory
  std::size_t buffer_bytes = 0;   // for inputs and outputs of the calls
  std::size_t taken_bytes = 0;    // in all; first calls took what exceeds the other two
};

struct RowResult {
  collectives::Operation operation;
  std::int64_t bytes = 0;  // bytes that algbw divides by
  std::string algorithm;
  std::string executor;
  std::vector<double> samples_us;     // [timed call] time of the slowest rank
  double time_us = 0;                 // per call, over the ranks as -a says
  double queued_us = 0;               // the host's time until the call was enqueued
  std::optional<std::int64_t> wrong;  // wrong elements, over all ranks and calls; nothing if unchecked
  std::int64_t timed_calls = 0;
  int graph_iterations = 0;  // iterations that one sample (a graph) replays; 0: no graph
  std::optional<PlanFacts> plan;
  std::vector<core::GpuStateRecord> gpu_states;     // behind the last sample; on rank 0, where there is NVML
  std::optional<core::GpuClocksRecord> gpu_clocks;  // likewise
  double algbw_gbps = 0;
  double busbw_gbps = 0;
  std::optional<GpuMemory> gpu_memory = {};  // with -M: at the end of the row
};

// Bytes that algbw divides by: those of the busiest rank in all_to_all_v, else collectives::message_bytes.
std::int64_t row_bytes(const collectives::Operation& operation, int num_ranks);

// Sets algbw and busbw from the row's bytes and time.
void set_bandwidths(RowResult& result, int num_ranks);

// Which ranks' times make the time of a call. A thread with several GPUs, each of which is a rank, takes as long as its
// slowest GPU, and -a combines the times of threads. This is nccl-tests' rule: its thread measures one time for all of
// its GPUs.
struct TimeRule {
  TimeOf time_of = TimeOf::mean;
  int gpus_a_thread = 1;
};
double time_by(const TimeRule& rule, const std::vector<double>& time_of_rank);

// Collective: all ranks call it together.
RowResult combine(transports::World& world, const collectives::Operation& operation, const Trial& trial,
                  const TimeRule& rule, bool checked);

}  // namespace lockstep::sweep
