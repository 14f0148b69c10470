// The messages between ranks: activations and gradients that cross a stage boundary.
#pragma once

#include <cstdint>
#include <optional>

#include "schedules/needs.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {

// The rank that receives the product of `action`; no value if the product stays on its rank.
std::optional<std::int32_t> receiver_of(const Schedule& schedule, const Action& action);

// The rank at the other end of a send or a receive.
std::int32_t peer_of(const Schedule& schedule, const Action& message);

// The payload of a send or a receive.
Need message_of(const Action& message);

bool has_messages(const Schedule& schedule);

// The schedule with SEND and RECV actions in place of those that it has: each message is sent right after the action
// that makes its payload and received right before the action that needs it.
Schedule with_messages(const Schedule& schedule);

}  // namespace lockstep::schedules
