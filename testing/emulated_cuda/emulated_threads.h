// Coroutines that act as the threads of a CUDA block, with its barriers and exchanges; emulated_grid.h and
// emulated_cuda/emulated_block.h use them. A thread runs until it must wait for others; the next one is drawn at
// random, so that a missing barrier shows up as a result that depends on the seed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/random.h"

namespace lockstep::kernels::emulated {

class Threads {
 public:
  static constexpr int kWarp = 32;
  using Words = std::array<std::uint32_t, 6>;
  using WarpWords = std::array<Words, kWarp>;

  Threads();
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // Runs body(t) as thread t, for t = 0 .. count - 1: whole warps, or fewer threads than one. Rethrows the first
  // exception of a thread, and throws core::Error if threads deadlock. Stacks are kept for the next call.
  void run(int count, core::Random& random, const std::function<void(int)>& body);

  // For the body: the thread that is running.
  int current() const;
  void meet_block();
  void give_way();  // any thread of the block may run next, including this one
  // Waits for the thread's warp and returns the words of each of its lanes; valid until the next call but one.
  const WarpWords& exchange(const Words& mine);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::kernels::emulated
