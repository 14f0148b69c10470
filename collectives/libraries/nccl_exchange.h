// Collectives as grouped sends and receives, as data: what NCCL is asked for where it has no call of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/collective.h"

namespace lockstep::libraries {

// Elements [first, first + count) of this rank's buffer, to or from a peer (which may be the rank itself).
struct Message {
  int peer;
  std::int64_t first;
  std::int64_t count;
};

// The operations that run concurrently: one NCCL group. Receives land in the output.
struct Round {
  std::vector<Message> sends;
  std::vector<Message> receives;
};

// One rank's side. Rounds follow each other.
struct Exchange {
  // Rounds send from the output, and the rank's own input is first put there at this element; else from the input.
  std::optional<std::int64_t> own_block_at;
  std::vector<Round> rounds;
};

// For all_to_all_v, send_recv and hypercube that nccl_refusal() lets pass; a bug of ours for the others.
Exchange exchange_of(const collectives::Operation& operation, int num_ranks, int rank);

}  // namespace lockstep::libraries
