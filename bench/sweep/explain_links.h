// Predicted time of a row on emulated links: its program is played on the links as they are specified
// (executors/program_time.h), with the ranks' own sums and copies at the speed of this machine. No timed message enters
// the prediction.
#pragma once

#include <span>

#include "bench/sweep/result.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/paced_link.h"

namespace lockstep::sweep {

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
