// Second step of a sweep, at one number of ranks, on one backend or on several in rotation: runs on every rank; rank 0
// passes the results to the sink. Also the other ways to run a session (as a worker, in virtual time), and what is
// printed about its rows: the devices that they run on, and their cost by the plan.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/collective_perf/plan.h"
#include "bench/collective_perf/table.h"
#include "bench/collective_perf/trial.h"
#include "collectives/backends/backend.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/paced_link.h"
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
  std::function<void(const core::GpuMemoryRecord&)> ended = [](const auto&) {};  // called with -M
};

// Runs on every rank, with an endpoint of each backend.
void run_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints, const Sink& sink);

// Serves a session's rows as cases of a worker (bench/serve/orders.h), instead of sweeping over them.

// Runs on every rank; rank 0 receives the orders. Rows are out of place:
// "all_reduce/two_shot/float/sum/65536B/ranks:2/local". A row's first order also fills its buffers and checks a batch
// of its results.
void serve_session(const SessionPlan& session, std::span<backends::Endpoint* const> endpoints);

// --transport simulated: runs a sweep's plans in virtual time on a described machine, which need not exist
// (simulator/network/collective_time.h). The table and the records are the usual ones, marked as simulated;
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

// Cost of a row by its plan: counts, and a prediction from alpha and beta measured in the same run.

// Fits alpha and beta to ring shifts of several sizes over the same endpoint, by least squares of the relative error.
// The smallest sample of each size counts, as other load on the machine only adds time. Reductions are part of the pass
// that moves the bytes, so gamma stays 0.
plan::CostModel measure_cost_model(backends::Endpoint& endpoint, std::byte* pool, std::uint64_t& rounds,
                                   const TrialOptions& options);
// Bytes of memory that measure_cost_model needs.
std::size_t cost_model_pool_bytes(int num_ranks, const TrialOptions& options);

struct TimedSize {
  double bytes;
  double us;
};
// Minimises the sum of ((alpha + beta * bytes - us) / us)^2 over alpha, beta >= 0.
plan::CostModel fit_alpha_beta(const std::vector<TimedSize>& points);

// `model` may be nullptr: counts only.
PlanFacts facts_of(const plan::Plan& plan, const collectives::Operation& operation, const plan::CostModel* model);

// Predicted time of a row on emulated links: its program is played on the links as they are specified
// (executors/program_time.h), with the ranks' own sums and copies at the speed of this machine. No timed message enters
// the prediction.

// Measured with all ranks at work, in passes as long as the row's, over as much memory as a batch of its calls uses.
struct MachineCost {
  double core_us_per_byte = 0;  // processor time per byte that a pass reads or writes; median of several rounds
  // the machine's time per byte, all ranks together; the best round, as other load only slows it down
  double machine_us_per_byte = 0;
};

// Collective: all ranks call it. Overwrites `memory`, which is this rank's.
MachineCost measure_machine_cost(transports::World& world, const collectives::Operation& operation,
                                 std::span<std::byte> memory);

// Adds predicted_us, links_us and memory_us. Like the samples, each is the time of a call on its slowest rank, in a
// batch of calls_of_a_batch calls without a pause, where a rank that finishes early starts the next call early; the
// median counts.
void predict_on_links(PlanFacts& facts, const plan::Plan& plan, const collectives::Operation& operation,
                      const transports::LinkSpec& link, const MachineCost& cost, int calls_of_a_batch);

}  // namespace lockstep::sweep
