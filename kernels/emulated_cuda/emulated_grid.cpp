#include "kernels/emulated_cuda/emulated_grid.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "kernels/emulated_cuda/cuda_runtime.h"
#include "kernels/emulated_cuda/emulated_threads.h"

// What cuda_rows.cuh declares as dynamic shared memory.
namespace lockstep::kernels {
alignas(128) thread_local uint4 dynamic_shared_memory[emulated::kMostSharedBytes / sizeof(uint4)];
}  // namespace lockstep::kernels

thread_local uint3 threadIdx;
thread_local uint3 blockIdx;
thread_local dim3 blockDim;
thread_local dim3 gridDim;

namespace lockstep::kernels::emulated {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw core::Error(core::Failure::internal, "emulated grid: " + what);
}

// One block runs at a time.
struct Grid {
  Threads threads;
  core::Random random{1};
};

Grid& the_grid() {
  static thread_local Grid grid;
  return grid;
}

// Others ran in between.
void take_turn() {
  threadIdx.x = static_cast<unsigned>(the_grid().threads.current());
}

}  // namespace

void run_grid(const GridShape& shape, const std::function<void()>& body) {
  if (shape.blocks == 0 || shape.threads == 0) fail("an empty grid");
  if (shape.shared_bytes > kMostSharedBytes) fail(std::to_string(shape.shared_bytes) + " bytes of shared memory");
  std::vector<unsigned> order(shape.blocks);
  std::iota(order.begin(), order.end(), 0U);
  auto& [threads, random] = the_grid();
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order.at(i - 1), order.at(random.below(i)));
  gridDim = dim3(shape.blocks);
  blockDim = dim3(shape.threads);
  for (const unsigned b : order) {
    blockIdx.x = b;
    auto* const shared = reinterpret_cast<std::byte*>(dynamic_shared_memory);
    std::fill(shared, shared + shape.shared_bytes, std::byte{0xff});
    threads.run(static_cast<int>(shape.threads), random, [&](int /*thread*/) {
      take_turn();
      body();
    });
  }
}

void set_order(std::uint64_t seed) {
  the_grid().random = core::Random(seed);
}

void meet_block() {
  the_grid().threads.meet_block();
  take_turn();
}

std::uint64_t exchange(std::uint64_t mine, int mask) {
  Threads& threads = the_grid().threads;
  const Threads::WarpWords& words =
      threads.exchange({static_cast<std::uint32_t>(mine), static_cast<std::uint32_t>(mine >> 32)});
  take_turn();
  const auto partner = static_cast<std::size_t>((threads.current() % Threads::kWarp) ^ mask);
  return words.at(partner)[0] | std::uint64_t{words.at(partner)[1]} << 32;
}

}  // namespace lockstep::kernels::emulated
