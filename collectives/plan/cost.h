// Counts of a plan and its cost: elements and bytes, steps, and time by alpha and beta.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/check.h"

namespace lockstep::plan {

// Elements and bytes of a plan's chunks in one operation.

// Elements of a chunk; in all_to_all_v they depend on its sender and receiver.
std::int64_t chunk_elems(const Plan& plan, const collectives::Operation& operation, const Moved& moved);

// Bytes that each step moves or combines (one operand), by step id of contents.ids().
std::vector<std::int64_t> step_bytes(const Plan& plan, const Contents& contents,
                                     const collectives::Operation& operation);

// Costs of a plan that can be counted. docs/plan_format.md defines each; docs/metrics.md has the closed forms.

struct RankCounts {
  std::int64_t messages_sent = 0;
  std::int64_t messages_received = 0;
  std::int64_t chunks_sent = 0;
  std::int64_t chunks_received = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
  std::int64_t bytes_reduced = 0;  // length of every two-operand reduction
  std::int64_t bytes_copied = 0;   // by copy steps
};

struct LinkCounts {
  int from = 0;
  int to = 0;
  std::int64_t messages = 0;
  std::int64_t chunks = 0;
  std::int64_t bytes = 0;
};

struct Counts {
  // Messages on the longest chain of dependences: latency terms if a rank's messages may overlap each other.
  int steps = 0;
  // Message times until the end if every rank sends one message at a time and receives one at a time.
  int rounds = 0;
  std::vector<RankCounts> ranks;  // [rank]
  std::vector<LinkCounts> links;  // links with traffic, by from, then to
  // Each number's maximum over the ranks.
  RankCounts busiest() const;
};

// `contents` is check()'s result for this plan.
Counts count(const Plan& plan, const Contents& contents, const collectives::Operation& operation);

// Predicted time of a plan in an alpha-beta-gamma model, event by event.
//
// Every rank has one full-duplex port: it sends one message at a time and receives one at a time. A message takes alpha
// + bytes * beta and occupies the ports of both ends. A rank's reductions and copies share its core, one at a time.
// Sends do not block their lane: buffers never fill up.
//
// Lanes share a port. The messages of a lane leave in order, and only the first is in line; the next gets in line when
// it has arrived. A message starts when both its ports are free and no message that could use either port, with its own
// ports free too, got in line earlier. At equal times the lane that has sent fewer messages goes first, then the lower
// lane, then the lower rank. So a busy receiver delays the lane that sends to it, and no other.

struct CostModel {
  double alpha_us = 0;           // per message
  double beta_us_per_byte = 0;   // per link direction
  double gamma_us_per_byte = 0;  // reduction of two operands
  double copy_us_per_byte = 0;   // copy step
};

// Time of a step's work. Send: its message is on the wire. Recv: the moment at which its message is complete. Others:
// on the core.
struct StepSpan {
  double begin_us = 0;
  double end_us = 0;
};

struct Prediction {
  double time_us = 0;
  std::vector<StepSpan> spans;  // by step id of contents.ids()
};

Prediction predict(const Plan& plan, const Contents& contents, const collectives::Operation& operation,
                   const CostModel& model);

}  // namespace lockstep::plan
