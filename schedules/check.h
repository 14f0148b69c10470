// Checks that a schedule is a complete training step: every microbatch goes once through each stage of one pipe,
// forward and backward, and each action comes after those that it depends on. If the lists contain messages, each
// message is sent once, after its payload is made, and received once, before its payload is used. On each stage the
// slices of a microbatch go forward from first to last and backward from last to first. Evicted activations are fetched
// before their backward. Times and channels do not matter here; check.h checks for deadlocks of channels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/schedule.h"

namespace lockstep::schedules {

struct Problem {
  std::int32_t rank = 0;
  std::size_t index = 0;  // in the rank's list; the list's length if an action is missing
  std::string what;
};

// All problems, in the order of ranks and lists; empty if the schedule is correct.
std::vector<Problem> check(const Schedule& schedule);

// The lists of all ranks around the problem's index, which is bracketed. Columns are equal indices, not equal times.
std::string grid_around(const Schedule& schedule, const Problem& problem);

// Throws core::Error(usage) with the first problem and the grid around it if the schedule has any problem.
void check_or_throw(const Schedule& schedule);

// Checks whether ranks that run their lists with messages (schedules/messages.h) deadlock on a given kind of channel.

enum class Waiting : std::uint8_t {
  blocking,  // each send blocks until it is received (MPI_Ssend)
  batched,   // messages between two computations start together and are awaited before the next computation (PyTorch's
             // P2POp)
  buffered,  // a send does not block while fewer than `slots` messages of its (sender, receiver) pair are in flight
};

struct ChannelRules {
  Waiting waiting = Waiting::batched;
  std::int32_t slots = 1;  // per pair of ranks, if buffered
};

// Empty if every rank finishes; else the action at which each blocked rank stands: "rank 1 at 4RECV_F2 from rank 0;
// ...".
std::string hang_of(const Schedule& with_messages, const ChannelRules& rules);

}  // namespace lockstep::schedules
