// A grid of CUDA threads on the CPU, for tests of our kernels where there is no GPU: the kernels' sources are compiled
// as C++ with the headers of this folder in place of CUDA's, and launches run here, block after block or all at once,
// their threads as emulated_threads.h runs them. Shared memory begins as NaN. Says nothing of speed, and of races
// between blocks only what the order of the blocks shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace lockstep::kernels::emulated {

struct GridShape {
  unsigned blocks;
  unsigned threads;  // whole warps, or 1
  std::size_t shared_bytes;
  bool early = false;  // it may begin before what was queued before it is done, and so must wait for that
};

inline constexpr std::size_t kMostSharedBytes = std::size_t{227} << 10;  // of a block on Hopper

// Runs body() as every thread of every block; threadIdx and the like say which. Throws what a thread throws first, and
// core::Error if threads wait for each other for ever, or
// one of an early grid does not wait for what was before.
void run_grid(const GridShape& shape, const std::function<void()>& body);

// The order in which threads and blocks run from now on follows from this.
void set_order(std::uint64_t seed);
// For kernels whose blocks wait for each other: from now on a grid that this thread launches has a thread a block.
void run_blocks_together();

// For the headers of this folder.
void meet_block();
void wait_for_stream();
void give_way();  // to other threads of the block, and to other blocks
// Waits for the thread's warp; what lane (this lane ^ mask) brought.
std::uint64_t exchange(std::uint64_t mine, int mask);

}  // namespace lockstep::kernels::emulated
