// Second step of a sweep, at one number of ranks, on one backend or on several in rotation: runs on every rank; rank 0
// passes the results to the sink.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/sweep/explain.h"
#include "bench/sweep/plan.h"
#include "bench/sweep/result.h"
#include "bench/sweep/table.h"
#include "core/gpu_record.h"

namespace lockstep::sweep {

// Results of one algorithm on one operation, out of place and in place.
struct Comparison {
  const backends::Backend* backend;
  std::string requested;  // as the user named it, or an algorithm that `auto` or `all` was replaced by
  RowResult out_of_place;
  std::optional<RowResult> in_place;
};

// Called on rank 0 only, in the order of the table.
struct Sink {
  std::function<void(const std::vector<DeviceLine>& places)> started;
  std::function<void(const Comparison&)> measured;
  // Called before a row runs, so that a failure can be reported with the row.
  std::function<void(const collectives::Operation&, const Contender&)> running;
  // The GPUs' clocks right now; none where there is nothing to see.
  core::SteadyClocks::Look look = {};
  std::function<void(const GpuMemory&)> ended = [](const GpuMemory&) {};  // called with -M
};

// Runs on every rank, with an endpoint of each backend.
void run_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints, const Sink& sink);

}  // namespace lockstep::sweep
