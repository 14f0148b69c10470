// Direct exchange between all ranks (or with the root) at once. Peers are visited from rank+1 on, so that not all ranks
// start with the same one.
#pragma once

#include "collectives/algorithms/numbers.h"

namespace lockstep::algorithms {

// Calls visit(peer) for each other rank: rank+1, rank+2, ...
template <typename Visit>
void for_each_peer(int rank, int num_ranks, Visit visit) {
  for (int i = 1; i < num_ranks; ++i) visit(wrap(rank + i, num_ranks));
}

}  // namespace lockstep::algorithms
