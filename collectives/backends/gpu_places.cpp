#include "collectives/backends/gpu_places.h"

namespace lockstep::backends {

GpuPlace gpu_place(int rank_of_host, int ranks_of_host, int gpus) {
  const int device = rank_of_host % gpus;
  return {.device = device, .ranks_on_it = (ranks_of_host - device + gpus - 1) / gpus};
}

std::optional<int> blocks_of_a_rank(int num_multiprocessors, int ranks_on_it) {
  if (ranks_on_it > num_multiprocessors) return std::nullopt;
  return num_multiprocessors / ranks_on_it;
}

}  // namespace lockstep::backends
