// Runs a step in wall-clock time on emulated devices: ranks are threads, kernels wait for their stated times, messages
// go through memory and take as long as on the stated link, and collectives run as their Plans over such links.
#pragma once

#include <chrono>
#include <functional>

#include "collectives/plan/plan.h"
#include "collectives/transports/paced_link.h"
#include "schedules/step/step.h"

namespace lockstep::simulator {

struct EmulationOptions {
  // For messages each ordered pair of ranks has such a link; for collectives each rank has one such port in each
  // direction.
  transports::LinkSpec link = {};
  // Longest time without any task of a rank beginning or ending, on top of the longest kernel and message.
  std::chrono::milliseconds deadline{60'000};
  // Returns the plan of a collective among `ranks` ranks.
  std::function<plan::Plan(schedules::Comm comm, int ranks)> plan_of = {};
};

struct EmulatedRun {
  // Starts and ends as recorded by the devices, from the common start.
  schedules::StepTimeline timeline;
  // Time from the common start until the last thread has seen its last task end.
  std::int64_t makespan_ns = 0;
  // Largest delay with which a thread woke up to issue a kernel, or to see the end of a collective or of the step.
  std::int64_t late_ns = 0;
};

// Throws core::Error: timeout on a deadlock, wrong_data if a message is not the expected one.
EmulatedRun run_emulated(const schedules::Step& step, const EmulationOptions& options);

}  // namespace lockstep::simulator
