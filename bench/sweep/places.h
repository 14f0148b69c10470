// Where the ranks of a session run: a line for each under "# Using devices", and which of them share a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sweep/table.h"
#include "collectives/backends/backend.h"

namespace lockstep::sweep {

// [rank]; the same on every rank. All ranks call it together. Host names are for the terminal: no record has them.
std::vector<DeviceLine> places_of_ranks(backends::Endpoint& endpoint, const backends::Backend& backend);

// The most ranks that are on one GPU.
int ranks_per_gpu(const std::vector<DeviceLine>& places);

// A line for each GPU that ranks share: "ranks 0-3 on device 0 NVIDIA H100 80GB HBM3 (4 ranks share it)".
std::vector<std::string> sharing_notes(const std::vector<DeviceLine>& places);

// What is said of ranks by numbers: "0-3,6".
std::string ranges_text(const std::vector<int>& ascending);

// Throws a usage Error if the ranks of a host would not fit into the memory of its GPUs, over which they are spread.
// Whether so much is free is seen when it is allocated.
void check_gpu_memory(const std::vector<core::CudaDeviceInfo>& gpus, int ranks_of_host, std::size_t bytes_per_rank,
                      std::int64_t max_bytes);

}  // namespace lockstep::sweep
