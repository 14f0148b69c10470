// Schedules as text: PyTorch's words for actions, and its CSV.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schedules/schedule.h"

namespace lockstep::schedules {

// Actions as torch.distributed.pipelining prints them: "0F1" is the forward of microbatch 1 on stage 0; "1RECV_F1" is
// its arrival at stage 1.

std::string_view name_of(Op op);  // "F", "RECV_B"
// With more than one slice per microbatch, prints microbatch and slice: "0F1.2".
std::string token_of(const Action& action, std::int32_t slices = 1);
// Returns no value if `text` is neither a token that PyTorch reads nor an EVICT or FETCH. UNSHARD, RESHARD and
// REDUCE_GRAD may have a microbatch (PyTorch prints none); all others must have one. Fused actions are two tokens
// (text.h).
std::optional<Action> parse_token(std::string_view text);

// Reads and writes schedules as the CSV of torch.distributed.pipelining: one line per rank, one cell per action; empty
// cells are idle time. docs/schedule_format.md has the grammar.

std::string to_csv(const Schedule& schedule);

// Parses a schedule without checking that it is a complete step (check.h does). A stage belongs to the rank in whose
// line it appears. `pipes`: number of chains that the stages form. Throws a usage Error with `source`, line, column,
// the text found there and what is allowed.
Schedule parse_csv(std::string_view text, std::string_view source, std::int32_t pipes = 1);

}  // namespace lockstep::schedules
