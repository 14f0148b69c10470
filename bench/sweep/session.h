// A sweep at one number of ranks, on one backend or on several by turns: what every rank does, and where rank 0 puts
// the results.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sweep/cases.h"
#include "bench/sweep/explain.h"
#include "bench/sweep/result.h"
#include "bench/sweep/table.h"
#include "bench/sweep/trial.h"

namespace lockstep::sweep {

// All results of one operation: an algorithm out of place and in place.
struct Comparison {
  const backends::Backend* backend;
  std::string requested;  // as the user named it, or what `auto` and `all` stood for
  RowResult out_of_place;
  std::optional<RowResult> in_place;
};

// Called on rank 0 only, in the order of the table.
struct Sink {
  std::function<void(const std::vector<DeviceLine>& places)> started;
  std::function<void(const Comparison&)> measured;
  // What is being run, for the report of a failure.
  std::function<void(const collectives::Operation&, const Contender&)> running;
};

struct SessionPlan {
  const SweepFlags& flags;
  Backends backends;  // several only if they share their ranks (backends::run_together)
  int num_ranks;
  double time_budget_s;  // of this session; 0: none
  std::vector<collectives::Operation> operations;
  std::vector<std::vector<Contender>> contenders;  // [operation]
  bool on_gpus() const { return backends.front()->on_gpus(); }
};

// Which transports of the flags share a session: those on GPUs do. find: by name.
using FindBackend = std::function<const backends::Backend&(std::string_view name)>;
std::vector<Backends> backends_of_sessions(const std::vector<std::string>& transports, const FindBackend& find);

SessionPlan plan_session(const SweepFlags& flags, const Backends& backends, int num_ranks, const Choices& choices);
TrialOptions trial_options(const SessionPlan& session);
// Device memory that a rank of the session needs.
std::size_t session_bytes(const SessionPlan& session);
// Host memory that a rank needs whose device's memory is not the host's.
std::size_t mirror_bytes(const SessionPlan& session);

// Runs on every rank, with an endpoint of each backend.
void run_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints, const Sink& sink);

}  // namespace lockstep::sweep
