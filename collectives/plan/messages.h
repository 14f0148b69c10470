// The match of sends and receives: a static property of a plan, because every (from, to, lane) is a first-in first-out
// channel and the steps of a lane run in order.
#pragma once

#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/plan/step_ids.h"

namespace lockstep::plan {

struct Message {
  int send = -1;     // step id; -1: the receive has no send
  int recv = -1;     // step id; -1: the send has no receive
  int position = 0;  // number of earlier messages in the same channel
};

struct Messages {
  std::vector<Message> list;  // channel by channel: the message before list[m] in its channel is list[m - 1]
  std::vector<int> of_step;   // [step id] index in list; -1 for steps that move nothing between ranks
};

// Peers must be ranks of the plan.
Messages match_messages(const Plan& plan, const StepIds& ids);

// All step ids, each after the step before it in its lane, its `after`, and the send that it receives. The plan must
// have passed the checker.
std::vector<int> dependence_order(const Plan& plan, const StepIds& ids, const Messages& messages);

}  // namespace lockstep::plan
