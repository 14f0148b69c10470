// Threads of the CPU that stay from launch to launch: to touch stacks and thread-local memory for the first time costs
// more than a block's work.
#pragma once

#include <functional>
#include <memory>

namespace lockstep::kernels::emulated {

// To be used by one thread.
class Crew {
 public:
  Crew();
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Runs work(0) .. work(count - 1) at the same time, each on a thread of its own; it must not throw.
  void run(unsigned count, const std::function<void(unsigned)>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::kernels::emulated
