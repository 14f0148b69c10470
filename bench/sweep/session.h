// Second step of a sweep, at one number of ranks, on one backend or on several in rotation: runs on every rank; rank 0
// passes the results to the sink.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/sweep/explain.h"
#include "bench/sweep/plan.h"
#include "bench/sweep/table.h"
#include "bench/sweep/trial.h"
#include "collectives/backends/backend.h"
#include "core/provenance.h"

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
  std::function<void(const collectives::Operation&, const Candidate&)> running;
  // The GPUs' clocks right now; none where there is nothing to see.
  core::SteadyClocks::Look look = {};
  std::function<void(const GpuMemory&)> ended = [](const GpuMemory&) {};  // called with -M
};

// Runs on every rank, with an endpoint of each backend.
void run_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints, const Sink& sink);

// Serves a session's rows as cases of a worker (bench/serve/orders.h), in place of sweeping over them.

// Runs on every rank; rank 0 receives the orders. Rows are out of place:
// "all_reduce/two_shot/float/sum/65536B/ranks:2/local". A row's first order also fills its buffers and checks a batch
// of its results.
void serve_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints);

// --transport simulated: runs a sweep's plans in virtual time on a described machine, which need not exist
// (simulator/network/plan_time.h). The table and the records are the usual ones and say that they are simulated;
// nothing is verified, as no bytes move.

// Takes the place of a backend in the plan of a sweep.
const backends::Backend& simulated_backend();
inline bool is_simulated(const SessionPlan& session) {
  return session.backends.front() == &simulated_backend();
}

// Throws a usage Error if the described machine has too few devices, or this machine too little memory for the plans.
void run_simulated(const SessionPlan& session, const Sink& sink);

// Devices that a session's ranks run on: a line per rank under "# Using devices", and notes on GPUs that ranks share.

// [rank]; the same on every rank. Collective: all ranks call it together. Host names go to the terminal only: no record
// contains them.
std::vector<DeviceLine> places_of_ranks(backends::Endpoint& endpoint, const backends::Backend& backend);

// Largest number of ranks on one GPU.
int ranks_per_gpu(const std::vector<DeviceLine>& places);

// One line per GPU that ranks share: "ranks 0-3 on device 0 NVIDIA H100 80GB HBM3 (4 ranks share it)".
std::vector<std::string> sharing_notes(const std::vector<DeviceLine>& places);

// Ranges of rank numbers as text: "0-3,6".
std::string ranges_text(const std::vector<int>& ascending);

// Throws a usage Error if the ranks of a host do not fit into the memory of its GPUs, over which they are spread.
// Checks the size of the memory; whether that much is free shows when it is allocated.
void check_gpu_memory(const std::vector<core::CudaDeviceInfo>& gpus, int ranks_of_host, std::size_t bytes_per_rank,
                      std::int64_t max_bytes);

}  // namespace lockstep::sweep
