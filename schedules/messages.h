// The messages between ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "schedules/needs.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {

// The rank that what `action` makes goes to, if it goes to another rank.
std::optional<std::int32_t> receiver_of(const Schedule& schedule, const Action& action);

// The rank at the other end of a send or a receive.
std::int32_t peer_of(const Schedule& schedule, const Action& message);

// The payload of a send or a receive.
Need message_of(const Action& message);

bool has_messages(const Schedule& schedule);

// The schedule with its messages, made anew if it has any: each is sent right after what makes it and received right
// before what needs it.
Schedule with_messages(const Schedule& schedule);

}  // namespace lockstep::schedules
