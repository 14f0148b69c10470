#include "collectives/backends/places.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "collectives/executors/cuda/cuda_ranks.h"

namespace lockstep::backends {

Process this_process() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return {.host = std::hash<std::string_view>()(name.data()), .number = getpid()};
}

HostPlacement places_among(std::span<const Process> all, int rank) {
  const Process mine = all[static_cast<std::size_t>(rank)];
  HostPlacement places{.rank_of_host = 0, .ranks_of_host = 0, .ranks_of_process = 0};
  for (int other = 0; other < static_cast<int>(all.size()); ++other) {
    const Process& its = all[static_cast<std::size_t>(other)];
    const bool on_host = its.host == mine.host;
    const bool in_process = on_host && its.number == mine.number;
    places.one_host = places.one_host && on_host;
    places.one_process = places.one_process && in_process;
    if (on_host) ++places.ranks_of_host;
    if (on_host && other < rank) ++places.rank_of_host;
    if (in_process) ++places.ranks_of_process;
    if (in_process && other < rank) places.leads_process = false;
  }
  return places;
}

HostPlacement host_placement(transports::World& world) {
  return places_among(transports::all_gather_value(world, this_process()), world.rank());
}

GpuAssignment assigned_gpu(int rank_of_host, int ranks_of_host, int gpus) {
  const int device = rank_of_host % gpus;
  return {.device = device, .ranks_on_it = (ranks_of_host - device + gpus - 1) / gpus};
}

std::optional<std::string> null_stream_refusal(const HostPlacement& places, int gpus) {
  if (sharers_in_process(places, gpus) <= 1) return std::nullopt;
  return "-y,--stream_null 1: " + std::to_string(places.ranks_of_process) + " ranks of a process share " +
         std::to_string(gpus) +
         " GPUs, and a NULL stream would run their kernels, which wait for each other, sequentially; allowed: 0, or a "
         "GPU for each rank of a process";
}

std::optional<int> blocks_of_a_rank(int num_multiprocessors, int ranks_on_it, int wanted) {
  const int share = executors::kBlocksPerMultiprocessor * num_multiprocessors / ranks_on_it;
  if (share < std::max(1, wanted)) return std::nullopt;
  if (wanted > 0) return wanted;
  return ranks_on_it == 1 ? std::min(share, kBlocksAlone) : share;
}

std::optional<int> blocks_beside_compute(int num_multiprocessors, int ranks_on_it, int side_by_side) {
  const int share = (num_multiprocessors - num_multiprocessors / 4) / (ranks_on_it * side_by_side);
  if (share < 1) return std::nullopt;
  return std::min(share, kBlocksAlone);
}

}  // namespace lockstep::backends
