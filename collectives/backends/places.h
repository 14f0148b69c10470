// Which ranks share a host, and which a process.
#pragma once

#include <cstdint>

#include "collectives/transports/world.h"

namespace lockstep::backends {

// The same for all threads of a process, different for any two processes of a world.
struct Process {
  std::uint64_t host;
  std::int64_t number;
};
Process this_process();

// Where every rank runs, as one of them sees it.
struct HostPlaces {
  int rank_of_host = 0;
  int ranks_of_host = 1;
  bool one_host = true;
  bool one_process = true;
};
// All ranks call it at the same time.
HostPlaces host_places(transports::World& world);

}  // namespace lockstep::backends
