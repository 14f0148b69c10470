// The one interpreter: walks a rank's tasks, lane by lane in their order, and calls a worker for each. It knows no
// schedule and no algorithm.
//
// A rank has one thread or more; each has some of the lanes, and looks at them in turn: a lane never holds up another
// of its thread, unless begin() of its worker does. Compute on the rank's own thread and collectives on another give
// both a core; workers that only start things need one thread for all.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/gate.h"
#include "schedules/interpreter/stage_worker.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

struct InterpreterOptions {
  // The thread of each lane; 0 is the rank's own. Threads whose lanes are empty are not started.
  std::array<std::uint8_t, kNumLanes> thread_of = {};
  // Threads other than the rank's own sleep until a task of the rank has ended, in place of StageWorker::idle(): for
  // lanes whose tasks are done when begin() returns. A nap now and then costs the core that kernels run on.
  bool others_sleep = false;
  // Tasks but messages begin in the order in which they are issued, whatever lane they are in: for one thread whose
  // collectives block it, which all ranks have to begin in the same order.
  bool in_issue_order = false;
  // The longest time in which no task of the rank begins or ends.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
};

// Runs the part of `rank` to its end and says when each task ran. Called by the rank's own thread, under
// core::run_ranks. A failure of any thread is raised on `abort`, which all threads of all ranks look at; past the
// deadline it is an Error(timeout) that says where each lane of the rank stands and what it waits for.
std::vector<TaskSpan> run_rank(const Step& step, std::int32_t rank, StageWorker& worker, core::AbortFlag& abort,
                               const InterpreterOptions& options = {});

}  // namespace lockstep::schedules
