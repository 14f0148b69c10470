// A grid of CUDA threads on the CPU, for tests of our kernels without a GPU: the kernels' sources are compiled as C++
// with the headers of this folder in place of CUDA's, and launches run here, block after block or all at once, with
// threads emulated by emulated_threads.h. Shared memory is initialised to NaN. It shows nothing about speed, and races
// between blocks only as far as the order of the blocks exposes them.
//
// Blocks of a cluster take turns: one runs until it waits for the others or exits, then a random one goes on, so that a
// missing cluster barrier gives wrong results for some seeds. An asynchronous copy takes place either at once or when
// the thread waits for it, at random, so that a missing wait and a buffer that is refilled too early do, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace lockstep::kernels::emulated {

struct GridShape {
  unsigned blocks;
  unsigned threads;  // whole warps, or 1
  std::size_t shared_bytes;
  unsigned cluster = 1;  // blocks per cluster; it divides `blocks`
  bool early = false;    // it may begin before the previously queued work is done, so it must wait for that
};

inline constexpr std::size_t kMostSharedBytes = std::size_t{227} << 10;  // limit of a block on Hopper
// Static shared memory that emulated kernels report: none of ours that also uses dynamic shared memory has more.
inline constexpr std::size_t kStaticSharedBytes = 1024;

// Runs body() as every thread of every block, with threadIdx etc. set. Rethrows the first exception of a thread. Throws
// core::Error if threads deadlock, or if a thread of an early grid does not wait for the work before it.
void run_grid(const GridShape& shape, const std::function<void()>& body);

// Sets the seed of the order in which threads and blocks run from now on.
void set_order(std::uint64_t seed);
// For kernels whose blocks wait for each other: grids that this thread launches from now on run each block on a thread
// of its own.
void run_blocks_together();
// Sets what CudaContext::most_cluster_blocks() returns in this thread: 8 unless set, 1 to emulate a device without
// clusters.
void set_most_cluster_blocks(int blocks);
// Lets this thread launch a kernel with that much dynamic shared memory; without it, 48 KiB less the static part.
void allow_dynamic_shared(const void* kernel, std::size_t dynamic_bytes);
// Whether a launch of the kernel with that much dynamic shared memory would succeed on a device.
bool may_launch(const void* kernel, std::size_t dynamic_bytes);
int most_cluster_blocks();

// For the headers of this folder.
void meet_block();
void wait_for_stream();
void give_way();  // yields to other threads of the block and to other blocks
// Waits for the thread's warp; returns the value of lane (this lane ^ mask).
std::uint64_t exchange(std::uint64_t mine, int mask);
void copy_async(void* to, const void* from, int size_bytes);
void end_copy_group();
void wait_for_copies(std::size_t groups_under_way);
unsigned cluster_blocks();
void meet_cluster();
// Returns the address that corresponds to `mine` in the shared memory of block `rank` of the cluster. Throws
// core::Error if that block has exited.
const void* shared_of_peer(const void* mine, unsigned rank);

}  // namespace lockstep::kernels::emulated
