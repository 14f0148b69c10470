// Discrete-event simulation of a step: lanes run their tasks in order, messages take links, collectives start when all
// members are there. Names no schedule and no algorithm.
//
// Time is in whole picoseconds, so that runs repeat exactly and sums do not depend on their order. Events at the same
// time are handled in the order of rank and lane.
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/step/step.h"
#include "simulator/engine/links.h"

namespace lockstep::simulator {

// Returns the duration of a group's collective, in picoseconds, once all members are there. May read comm, peer (the
// group's index) and amount of the task.
using CollectiveTime = std::function<std::int64_t(const schedules::Group& group, const schedules::Task& task)>;

struct Simulation {
  // A kernel's span is the time in which it runs. A communication's span is the time in which its bytes move: for a
  // receive from the message's start to its arrival, for a collective from the arrival of its last member.
  schedules::StepTimeline timeline;
  std::int64_t makespan_ps = 0;
  std::int64_t events = 0;
};

// While n collectives of a rank run, its kernels run at 1 - n x `taken` of their rate, as collectives occupy thread
// blocks of the device. Throws core::Error(usage) on a deadlock, with the task at which each rank is blocked.
Simulation simulate(const schedules::Step& step, const Topology& topology, const CollectiveTime& collective_time,
                    double taken = 0);

}  // namespace lockstep::simulator
