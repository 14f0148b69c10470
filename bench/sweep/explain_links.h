// The time that a row should take on emulated links: its program played on the links as they are stated
// (executors/program_time.h), with the ranks' own sums and copies at the speed of this machine. Nothing that is
// predicted comes from timed messages.
#pragma once

#include <span>

#include "bench/sweep/result.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/paced_link.h"

namespace lockstep::sweep {

// Measured with all ranks at work, in passes as long as the row's and over as much memory as a batch of its calls.
struct MachineCost {
  double core_us_per_byte = 0;     // processor time for what a pass reads and writes; the median of several rounds
  double machine_us_per_byte = 0;  // the machine's, all ranks together; the best round, as others can only slow it down
};

// All ranks call this. Overwrites `memory`, this rank's.
MachineCost measure_machine_cost(transports::World& world, const collectives::Operation& operation,
                                 std::span<std::byte> memory);

// Adds predicted_us, links_us and memory_us. Like the samples, the times are those of a call's slowest rank in a batch
// of so many calls without a pause, in which a rank that leaves early comes early to the next; the median.
void predict_on_links(PlanFacts& facts, const plan::Plan& plan, const collectives::Operation& operation,
                      const transports::LinkSpec& link, const MachineCost& cost, int calls_of_a_batch);

}  // namespace lockstep::sweep
