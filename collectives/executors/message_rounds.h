// Message programs as rounds: the operations of each rank if messages go in groups, one group after the other, and no
// group ends before all its messages are done. NCCL's groups of sends and receives in a stream work like this; so does
// a transport that buffers nothing.
//
// Rounds cannot hang: the two ends of a message are in the round of the same number. So a rank's group k only needs
// other ranks to have begun their groups k, which only needs all groups below k to be done.
#pragma once

#include <optional>
#include <vector>

#include "collectives/executors/message_program.h"

namespace lockstep::executors {

// Operations by their index in the rank's program. Work on memory comes first, in this order; then all messages at
// once. Messages between two ranks have the same order at both ends.
struct MessageRound {
  std::vector<int> work;
  std::vector<int> sends;
  std::vector<int> recvs;
};
using MessageRounds = std::vector<MessageRound>;  // a rank's, without empty rounds; the last may have no messages

// [rank]. Every message is in the first round in which both of its ends can run. Returns nothing if the programs
// deadlock.
std::optional<std::vector<MessageRounds>> find_message_rounds(const std::vector<MessageProgram>& ranks,
                                                              const MessageLimits& limits);

}  // namespace lockstep::executors
