#include "collectives/backends/places.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <vector>

#include "collectives/executors/cuda/cuda_ranks.h"

namespace lockstep::backends {

Process this_process() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return {.host = std::hash<std::string_view>()(name.data()), .number = getpid()};
}

HostPlacement host_placement(transports::World& world) {
  const Process mine = this_process();
  const std::vector<Process> all = transports::all_gather_value(world, mine);
  HostPlacement places{.rank_of_host = 0, .ranks_of_host = 0};
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

GpuAssignment assigned_gpu(int rank_of_host, int ranks_of_host, int gpus) {
  const int device = rank_of_host % gpus;
  return {.device = device, .ranks_on_it = (ranks_of_host - device + gpus - 1) / gpus};
}

std::optional<int> blocks_of_a_rank(int num_multiprocessors, int ranks_on_it, int wanted) {
  const int share = executors::kBlocksAMultiprocessor * num_multiprocessors / ranks_on_it;
  if (share < std::max(1, wanted)) return std::nullopt;
  if (wanted > 0) return wanted;
  return ranks_on_it == 1 ? std::min(share, kBlocksAlone) : share;
}

}  // namespace lockstep::backends
