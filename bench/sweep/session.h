// A sweep on one backend at one number of ranks: what every rank does, and where rank 0 puts the results.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/sweep/cases.h"
#include "bench/sweep/explain.h"
#include "bench/sweep/result.h"
#include "bench/sweep/table.h"

namespace lockstep::sweep {

// All results of one operation: an algorithm out of place and in place.
struct Comparison {
  std::string requested;  // as the user named it, or what `auto` and `all` stood for
  RowResult out_of_place;
  std::optional<RowResult> in_place;
};

// Called on rank 0 only, in the order of the table.
struct Sink {
  std::function<void(const std::vector<DeviceLine>& places)> started;
  std::function<void(const Comparison&)> measured;
  // What is being run, for the report of a failure.
  std::function<void(const collectives::Operation&, const std::string& algorithm)> running;
};

struct SessionPlan {
  const SweepFlags& flags;
  const backends::Backend& backend;
  int num_ranks;
  double time_budget_s;  // of this session; 0: none
  std::vector<collectives::Operation> operations;
  std::vector<std::vector<std::string>> algorithms;  // [operation]
};

SessionPlan plan_session(const SweepFlags& flags, const backends::Backend& backend, int num_ranks,
                         const tuning::Table& table);
// Device memory that a rank of the session needs.
std::size_t session_bytes(const SessionPlan& session);
// Host memory that a rank needs whose device's memory is not the host's.
std::size_t mirror_bytes(const SessionPlan& session);

// Runs on every rank.
void run_session(const SessionPlan& session, backends::Endpoint& endpoint, const Sink& sink);

}  // namespace lockstep::sweep
