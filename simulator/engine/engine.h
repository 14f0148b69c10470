// A step in virtual time, event by event: lanes take their tasks in order, messages take links, collectives start when
// all members are there. Names no schedule and no algorithm.
//
// Time is in whole picoseconds, so that runs repeat exactly and sums do not depend on their order. Two events at the
// same time are taken in the order of rank and lane.
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"
#include "simulator/engine/links.h"

namespace lockstep::simulator {

// How long a collective task of a group takes once all members are there. Of the task it may ask comm, peer (the
// group's index) and amount.
using CollectiveTime = std::function<std::int64_t(const schedules::Group& group, const schedules::Task& task)>;

struct Simulation {
  // A kernel's span is when it runs. A communication's span is when its bytes move: of a receive from the message's
  // start to its arrival, of a collective from the arrival of its last member.
  schedules::StepTimeline timeline;
  std::int64_t makespan_ps = 0;
  std::int64_t events = 0;
};

// While a collective of a rank runs, its kernels run at 1 - `taken` of their rate, two collectives take twice that: a
// collective has thread blocks of its own on the device. Throws core::Error(usage) if ranks come to wait for each other
// for ever, and says where each of them stands.
Simulation simulate(const schedules::Step& step, const Topology& topology, const CollectiveTime& collective_time,
                    double taken = 0);

}  // namespace lockstep::simulator
