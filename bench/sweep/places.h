// Devices that a session's ranks run on: a line per rank under "# Using devices", and notes on GPUs that ranks share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sweep/table.h"
#include "collectives/backends/backend.h"

namespace lockstep::sweep {

// [rank]; the same on every rank. Collective: all ranks call it together. Host names go to the terminal only: no record
// contains them.
std::vector<DeviceLine> places_of_ranks(backends::Endpoint& endpoint, const backends::Backend& backend);

// Largest number of ranks on one GPU.
int ranks_per_gpu(const std::vector<DeviceLine>& places);

// One line per GPU that ranks share: "ranks 0-3 on device 0 NVIDIA H100 80GB HBM3 (4 ranks share it)".
std::vector<std::string> sharing_notes(const std::vector<DeviceLine>& places);

// Ranges of rank numbers as text: "0-3,6".
std::string ranges_text(const std::vector<int>& ascending);

// Throws a usage Error if the ranks of a host do not fit into the memory of its GPUs, over which they are spread.
// Checks the size of the memory; whether that much is free shows when it is allocated.
void check_gpu_memory(const std::vector<core::CudaDeviceInfo>& gpus, int ranks_of_host, std::size_t bytes_per_rank,
                      std::int64_t max_bytes);

}  // namespace lockstep::sweep
