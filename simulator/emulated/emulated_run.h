// Runs a step in wall-clock time on emulated devices: ranks are threads, kernels wait as long as stated, messages
// travel through memory and take as long as a stated link would, collectives run as their Plans over such links.
#pragma once

#include <chrono>
#include <functional>

#include "collectives/plan/plan.h"
#include "collectives/transports/paced_link.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::simulator {

struct EmulationOptions {
  // Of messages each ordered pair of ranks has one of its own; of collectives each rank has one port, both ways.
  transports::LinkSpec link = {};
  // Beyond what the longest kernel and message take: without any task of a rank beginning or ending.
  std::chrono::milliseconds deadline{60'000};
  // The plan of a collective among so many ranks.
  std::function<plan::Plan(schedules::Comm comm, int ranks)> plan_of = {};
};

struct EmulatedRun {
  // Starts and ends as the devices kept them, from the common start.
  schedules::StepTimeline timeline;
  // From the common start until the last thread has seen the last of its tasks end.
  std::int64_t makespan_ns = 0;
  // By which a thread woke up too late, at worst: to issue a kernel, or to see the end of a collective or of the step.
  std::int64_t late_ns = 0;
};

// Throws core::Error: timeout where ranks wait for each other for ever, wrong_data where a message is not the one that
// was due.
EmulatedRun run_emulated(const schedules::Step& step, const EmulationOptions& options);

}  // namespace lockstep::simulator
