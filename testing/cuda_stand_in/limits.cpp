#include "testing/cuda_stand_in/limits.h"

#include <driver_types.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "testing/cuda_stand_in/gpu.h"
#include "testing/cuda_stand_in/refused.h"

namespace lockstep::cuda_stand_in {
namespace {

std::string text_of(Extent extent) {
  return fmt::format("{} x {} x {}", extent.x, extent.y, extent.z);
}

void check_extents(const LaunchRequest& request) {
  const Extent& grid = request.grid;
  const Extent& block = request.block;
  if (grid.count() == 0 || grid.x > gpu::kMostGridX || grid.y > gpu::kMostGridY || grid.z > gpu::kMostGridZ) {
    throw Refused(cudaErrorInvalidConfiguration,
                  fmt::format("the grid is {}; allowed: 1 to {} x {} x {}", text_of(grid), gpu::kMostGridX,
                              gpu::kMostGridY, gpu::kMostGridZ));
  }
  if (block.count() == 0 || block.count() > gpu::kBlockThreads || block.x > gpu::kMostBlockX ||
      block.y > gpu::kMostBlockY || block.z > gpu::kMostBlockZ) {
    throw Refused(cudaErrorInvalidConfiguration,
                  fmt::format("the block is {}; allowed: 1 to {} threads", text_of(block), gpu::kBlockThreads));
  }
}

void check_cluster(const LaunchRequest& request, bool has_clusters) {
  const Extent& cluster = request.cluster;
  const unsigned most = has_clusters ? gpu::kPortableClusterBlocks : 1;
  if (cluster.count() == 0 || cluster.count() > most) {
    throw Refused(cudaErrorInvalidClusterSize,
                  fmt::format("the cluster is {}; allowed: 1 to {} blocks", text_of(cluster), most));
  }
  const Extent& grid = request.grid;
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    throw Refused(cudaErrorInvalidClusterSize,
                  fmt::format("the grid, {}, is not made of whole clusters of {}", text_of(grid), text_of(cluster)));
  }
}

void check_shared(const KernelFacts& facts, const LaunchRequest& request) {
  const std::size_t most = std::max(usual_dynamic_shared_bytes(facts), request.opted_in_bytes);
  if (request.dynamic_shared_bytes <= most) return;
  throw Refused(
      cudaErrorInvalidValue,
      fmt::format("{} bytes of dynamic shared memory with {} static ones; allowed: {} ({})",
                  request.dynamic_shared_bytes, facts.static_shared_bytes, most,
                  request.opted_in_bytes > 0 ? "what was opted in to" : "48 KiB together, as nothing was opted in to"));
}

// Registers are assigned to warps, in multiples of gpu::kRegistersAtOnce.
int registers_of_warp(const KernelFacts& facts) {
  const int asked = facts.registers * gpu::kWarpThreads;
  return (asked + gpu::kRegistersAtOnce - 1) / gpu::kRegistersAtOnce * gpu::kRegistersAtOnce;
}

int warps_of(unsigned threads) {
  return (static_cast<int>(threads) + gpu::kWarpThreads - 1) / gpu::kWarpThreads;
}

void check_threads(const KernelFacts& facts, const LaunchRequest& request) {
  const auto threads = static_cast<unsigned>(request.block.count());
  if (threads > static_cast<unsigned>(facts.most_threads)) {
    throw Refused(cudaErrorInvalidValue,
                  fmt::format("{} threads in a block; the kernel allows {}", threads, facts.most_threads));
  }
  const int registers = registers_of_warp(facts) * warps_of(threads);
  if (registers > gpu::kRegisters) {
    throw Refused(cudaErrorLaunchOutOfResources, fmt::format("{} threads of {} registers need {}; a block has {}",
                                                             threads, facts.registers, registers, gpu::kRegisters));
  }
}

void check_parameters(const KernelFacts& facts) {
  std::size_t end = 0;
  for (const Parameter& parameter : facts.parameters) {
    end = std::max(end, parameter.offset_bytes + parameter.size_bytes);
  }
  if (end > gpu::kParameterBytes) {
    throw Refused(cudaErrorInvalidValue, fmt::format("{} bytes of parameters; allowed: {}", end, gpu::kParameterBytes));
  }
}

void check_residency(const KernelFacts& facts, const LaunchRequest& request, int multiprocessors) {
  const int of_one =
      blocks_per_multiprocessor(facts, static_cast<unsigned>(request.block.count()), request.dynamic_shared_bytes);
  const auto most = static_cast<std::uint64_t>(of_one) * static_cast<std::uint64_t>(multiprocessors);
  if (request.grid.count() <= most) return;
  throw Refused(cudaErrorCooperativeLaunchTooLarge,
                fmt::format("a cooperative grid of {} blocks; {} can run at the same time, {} on a multiprocessor",
                            request.grid.count(), most, of_one));
}

}  // namespace

std::size_t usual_dynamic_shared_bytes(const KernelFacts& facts) {
  return gpu::kSharedBytes - std::min(gpu::kSharedBytes, facts.static_shared_bytes);
}

std::size_t most_dynamic_shared_bytes(const KernelFacts& facts) {
  return gpu::kOptInSharedBytes - std::min(gpu::kOptInSharedBytes, facts.static_shared_bytes);
}

int blocks_per_multiprocessor(const KernelFacts& facts, unsigned block_threads, std::size_t dynamic_shared_bytes) {
  const int warps = warps_of(block_threads);
  int blocks = std::min(gpu::kMultiprocessorBlocks, gpu::kMultiprocessorThreads / (warps * gpu::kWarpThreads));
  if (facts.registers > 0) blocks = std::min(blocks, gpu::kRegisters / (registers_of_warp(facts) * warps));
  const std::size_t shared = facts.static_shared_bytes + dynamic_shared_bytes + gpu::kReservedSharedBytes;
  return std::min(blocks, static_cast<int>(gpu::kMultiprocessorSharedBytes / shared));
}

void check_launch(const KernelFacts& facts, const LaunchRequest& request, const DescribedGpu& described) {
  check_extents(request);
  check_cluster(request, described.has_clusters);
  check_parameters(facts);
  check_shared(facts, request);
  check_threads(facts, request);
  if (request.cooperative) check_residency(facts, request, described.multiprocessors);
}

}  // namespace lockstep::cuda_stand_in
