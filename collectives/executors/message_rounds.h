// Message programs as rounds: what each rank does if messages go in groups, one group after the other, and none is over
// before all its messages are. NCCL's groups of sends and receives in a stream are such; so is a transport that buffers
// nothing, seen from afar.
//
// Why rounds cannot hang: the two ends of a message are in the round of the same number. So a rank's group k needs of
// others only that they have begun their groups k, and these only that all groups below k are over.
#pragma once

#include <optional>
#include <vector>

#include "collectives/executors/message_program.h"

namespace lockstep::executors {

// Operations by their index in the rank's program. Work on memory comes first, in this order; then all messages at
// once. Those between two ranks have the same order at both ends.
struct MessageRound {
  std::vector<int> work;
  std::vector<int> sends;
  std::vector<int> recvs;
};
using MessageRounds = std::vector<MessageRound>;  // of a rank, without empty ones; the last may have no messages

// [rank]. Every message is in the first round in which both of its ends can run. Nothing if the programs get stuck.
std::optional<std::vector<MessageRounds>> find_message_rounds(const std::vector<MessageProgram>& ranks,
                                                              const MessageLimits& limits);

}  // namespace lockstep::executors
