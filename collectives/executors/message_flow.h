// What must be copied so that a plan runs over messages whose sends are done only when they are received.
//
// Steps become operations that start as soon as the memory that they touch allows it. A receive that lands in its final
// place must wait for sends that still read that place; if such waits close a cycle (two ranks that swap a buffer),
// the receive has to land elsewhere first, or the send has to leave from a copy. The whole plan is run once, under the
// worst timing that the executor can meet (no buffering in the transport, one receive posted a lane), and each time
// that it gets stuck one copy is put in. Which operations can run never depends on timing, and more buffering only
// lets more of them run: what ends here, ends always.
#pragma once

#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/plan/step_ids.h"

namespace lockstep::executors {

struct Flow {
  std::vector<char> staged;    // [step id] this recv lands in a staging slot (every recv_reduce does)
  std::vector<char> buffered;  // [step id] this send leaves from a private copy
};

// The plan must have passed the checker for `in_place`.
Flow find_flow(const plan::Plan& plan, const plan::StepIds& ids, bool in_place);

// The steps of a rank in an order that its lanes and `after` edges allow; conflicting steps of a checked plan have the
// same order in all of them.
std::vector<int> steps_in_order(const plan::Plan& plan, const plan::StepIds& ids, int rank);

}  // namespace lockstep::executors
