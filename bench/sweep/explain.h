// Cost of a row by its plan: counts, and a prediction from alpha and beta measured in the same run.
#pragma once

#include <span>

#include "bench/sweep/trial.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/paced_link.h"

namespace lockstep::sweep {

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
