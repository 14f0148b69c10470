// An action as PyTorch's pipelining prints it: "0F1" is stage 0, forward, microbatch 1; "1RECV_F1" its arrival at
// stage 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schedules/schedule.h"

namespace lockstep::schedules {

std::string_view name_of(Op op);  // "F", "RECV_B"
// With `slices` a microbatch the number of a microbatch is told as microbatch and slice: "0F1.2".
std::string token_of(const Action& action, std::int32_t slices = 1);
// Empty if `text` is none that PyTorch reads, and no EVICT or FETCH. UNSHARD, RESHARD and REDUCE_GRAD have a microbatch
// or none (PyTorch prints none), all others have one. Fused actions are two tokens of text.h.
std::optional<Action> parse_token(std::string_view text);

}  // namespace lockstep::schedules
