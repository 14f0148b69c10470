// Lowers a schedule to a step: one task per action, plus a send and a receive for each product that goes to another
// rank.
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
  std::int64_t message_bytes = 0;       // its output, and the gradient of its output
  std::int64_t kept_bytes = 0;          // activations kept until the backward, which an EVICT moves
};

enum class Sends : std::uint8_t {
  asynchronous,  // the compute lane continues
  awaited,       // the next computation waits until the message has left (Megatron without overlap_p2p_communication)
};

// `costs`: one entry per stage of the schedule, or per slice of each stage (work_index()). Fused actions start when all
// of their messages have arrived, and send when all have ended. The schedule has to pass check(); messages in it are
// replaced.
//
// EVICT sends activations that are there after the computation before it, and overlaps the next computation; later
// computations and FETCHes wait for it, as they use the freed memory. FETCH sends its request and receives beside the
// next computation; the backward that needs it waits. The partner rank answers in order, in lane copy, independently of
// its own list.
Step lower(const Schedule& schedule, std::span<const StageCosts> costs, Sends sends = Sends::asynchronous);

}  // namespace lockstep::schedules
