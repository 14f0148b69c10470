// What is known of a row when it has been measured, the same on every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/sweep/flags.h"
#include "bench/sweep/trial.h"

namespace lockstep::sweep {

// What a plan says of itself before anything runs.
struct PlanFacts {
  int steps;                                // messages on the longest chain
  std::int64_t wire_bytes_max;              // sent by the busiest rank
  std::int64_t wire_bytes_total;            // sent by all
  std::optional<double> predicted_us = {};  // if alpha and beta are known, or stated
  // With emulated links: the part of the prediction that is theirs alone, and how long this machine takes at least to
  // move the bytes that all ranks read and write. Above the prediction the memory is measured, not the links.
  std::optional<double> links_us = {};
  std::optional<double> memory_us = {};
};

struct RowResult {
  collectives::Operation operation;
  std::int64_t bytes = 0;  // what algbw divides by
  std::string algorithm;
  std::string executor;
  std::vector<double> samples_us;     // [timed call] the slowest rank
  double time_us = 0;                 // of a call, over the ranks as -a says
  double queued_us = 0;               // the host's part of it, until the call was queued
  std::optional<std::int64_t> wrong;  // elements, all ranks and calls; nothing if unchecked
  std::int64_t timed_calls = 0;
  int graph_iterations = 0;  // that a sample replays; 0: no graph
  std::optional<PlanFacts> plan;
  double algbw_gbps = 0;
  double busbw_gbps = 0;
};

// Bytes by which algbw divides: of the busiest rank in all_to_all_v, else collectives::message_bytes.
std::int64_t row_bytes(const collectives::Operation& operation, int num_ranks);

// From its bytes and time.
void set_bandwidths(RowResult& result, int num_ranks);

// All ranks call this together.
RowResult combine(transports::World& world, const collectives::Operation& operation, const Trial& trial, TimeOf time_of,
                  bool checked);

}  // namespace lockstep::sweep
