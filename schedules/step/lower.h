// From a schedule to a step: one task an action, and a send and a receive for whatever goes to another rank.
#pragma once

#include <cstdint>
#include <span>

#include "schedules/schedule.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// Times of a stage for one microbatch.
struct StageCosts {
  std::int64_t forward_ps = 0;
  std::int64_t input_gradient_ps = 0;
  std::int64_t weight_gradient_ps = 0;  // a full backward takes both
  std::int64_t message_bytes = 0;       // of its output, and of the gradient of its output
  std::int64_t kept_bytes = 0;          // from the forward to the backward, which an EVICT moves
};

enum class Sends : std::uint8_t {
  asynchronous,  // the compute lane goes on
  awaited,       // the next computation waits until the message has left (Megatron without overlap_p2p_communication)
};

// `costs`: one for every stage of the schedule, or for every slice of every stage (work_index()). Actions that run as
// one start when all of their messages are there, and send when all have ended. The schedule has to be right (check.h);
// it may have messages in it, which are left out and made anew.
//
// EVICT sends what the last computation before it has kept or left, and runs beside the next one; later ones and later
// FETCHes wait for it, as they take its place. FETCH asks and receives beside the next computation; what needs it
// waits. The other rank answers in their order, in lane copy, whatever its own list is at.
Step lower(const Schedule& schedule, std::span<const StageCosts> costs, Sends sends = Sends::asynchronous);

}  // namespace lockstep::schedules
