#include "collectives/libraries/nccl_exchange.h"

#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;
using collectives::Operation;

// Every block of a buffer, sent to or received from the rank of the same number.
std::vector<Message> block_each(const std::vector<std::int64_t>& offsets) {
  std::vector<Message> messages;
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    messages.push_back({.peer = static_cast<int>(b), .first = offsets[b], .count = offsets[b + 1] - offsets[b]});
  }
  return messages;
}

Round ring_shift(const Operation& operation, int num_ranks, int rank) {
  const int next = (rank + 1) % num_ranks;
  const int previous = (rank + num_ranks - 1) % num_ranks;
  return {.sends = {{.peer = next, .first = 0, .count = operation.count}},
          .receives = {{.peer = previous, .first = 0, .count = operation.count}}};
}

// In round k, neighbours across dimension k exchange the 2^k blocks that they hold by then.
std::vector<Round> hypercube(const Operation& operation, int num_ranks, int rank) {
  std::vector<Round> rounds;
  for (int width = 1; width < num_ranks; width *= 2) {
    const int peer = rank ^ width;
    const int mine = rank & ~(width - 1);
    const int theirs = peer & ~(width - 1);
    rounds.push_back(
        {.sends = {{.peer = peer, .first = mine * operation.count, .count = width * operation.count}},
         .receives = {{.peer = peer, .first = theirs * operation.count, .count = width * operation.count}}});
  }
  return rounds;
}

}  // namespace

Exchange exchange_of(const Operation& operation, int num_ranks, int rank) {
  switch (operation.kind) {
    case Kind::all_to_all_v:
      return {.own_block_at = std::nullopt,
              .rounds = {{.sends = block_each(input_offsets(operation, num_ranks, rank)),
                          .receives = block_each(output_offsets(operation, num_ranks, rank))}}};
    case Kind::send_recv:
      return {.own_block_at = std::nullopt, .rounds = {ring_shift(operation, num_ranks, rank)}};
    case Kind::hypercube:
      return {.own_block_at = rank * operation.count, .rounds = hypercube(operation, num_ranks, rank)};
    default:
      break;
  }
  LOCKSTEP_CHECK(false, "NCCL has a call for this collective");
  return {};
}

}  // namespace lockstep::libraries
