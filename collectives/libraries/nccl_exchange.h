// Collectives as grouped sends and receives, as data: used if NCCL has no call of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/collective.h"

namespace lockstep::libraries {

// Elements [first, first + count) of this rank's buffer, sent to or received from a peer (which may be the rank
// itself).
struct Message {
  int peer;
  std::int64_t first;
  std::int64_t count;
};

// Messages that run concurrently: one NCCL group. Receives go to the output.
struct Round {
  std::vector<Message> sends;
  std::vector<Message> receives;
};

// One rank's part. Rounds follow each other.
struct Exchange {
  // If set, rounds send from the output, and the rank's own input is first copied there, to this element; else rounds
  // send from the input.
  std::optional<std::int64_t> own_block_at;
  std::vector<Round> rounds;
};

// For all_to_all_v, send_recv and hypercube that nccl_refusal() accepts; LOCKSTEP_CHECK fails for other kinds.
Exchange exchange_of(const collectives::Operation& operation, int num_ranks, int rank);

}  // namespace lockstep::libraries
