// Direct exchange: everybody talks to everybody (or to the root) at once. Peers are taken from rank+1 on, so that not
// all start with the same one.
#pragma once

#include "collectives/algorithms/numbers.h"

namespace lockstep::algorithms {

// Calls visit(peer) for each other rank: rank+1, rank+2, ...
template <typename Visit>
void for_each_peer(int rank, int num_ranks, Visit visit) {
  for (int i = 1; i < num_ranks; ++i) visit(wrap(rank + i, num_ranks));
}

}  // namespace lockstep::algorithms
