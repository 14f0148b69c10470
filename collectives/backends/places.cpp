#include "collectives/backends/host_places.h"

#include <unistd.h>

#include <array>
#include <functional>
#include <string_view>
#include <vector>

namespace lockstep::backends {

Process this_process() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return {.host = std::hash<std::string_view>()(name.data()), .number = getpid()};
}

HostPlaces host_places(transports::World& world) {
  const Process mine = this_process();
  const std::vector<Process> all = transports::all_gather_value(world, mine);
  HostPlaces places{.rank_of_host = 0, .ranks_of_host = 0};
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const bool here = all[rank].host == mine.host;
    places.one_host = places.one_host && here;
    places.one_process = places.one_process && here && all[rank].number == mine.number;
    if (!here) continue;
    ++places.ranks_of_host;
    if (static_cast<int>(rank) < world.rank()) ++places.rank_of_host;
  }
  return places;
}

}  // namespace lockstep::backends
