// Costs of a plan that can be counted. docs/plan_format.md defines each; docs/metrics.md has the closed forms.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/check.h"

namespace lockstep::plan {

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

}  // namespace lockstep::plan
