// Actions as torch.distributed.pipelining prints them: "0F1" is the forward of microbatch 1 on stage 0; "1RECV_F1" is
// its arrival at stage 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schedules/schedule.h"

namespace lockstep::schedules {

std::string_view name_of(Op op);  // "F", "RECV_B"
// With more than one slice per microbatch, prints microbatch and slice: "0F1.2".
std::string token_of(const Action& action, std::int32_t slices = 1);
// Returns no value if `text` is neither a token that PyTorch reads nor an EVICT or FETCH. UNSHARD, RESHARD and
// REDUCE_GRAD may have a microbatch (PyTorch prints none); all others must have one. Fused actions are two tokens
// (text.h).
std::optional<Action> parse_token(std::string_view text);

}  // namespace lockstep::schedules
