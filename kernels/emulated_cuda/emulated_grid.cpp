#include "kernels/emulated_cuda/emulated_grid.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "kernels/emulated_cuda/cuda_runtime.h"
#include "kernels/emulated_cuda/emulated_threads.h"

// The array that cuda_rows.cuh declares as dynamic shared memory.
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

constexpr unsigned kWaysAYield = 64;  // yields among a block's threads until other blocks get the core

// CPU threads that are kept from launch to launch: touching stacks and thread-local memory for the first time costs
// more than a block's work. For one thread at a time.
class Crew {
 public:
  Crew() = default;
  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    begins_.notify_all();
    members_.clear();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Runs work(0) .. work(count - 1) at the same time, each on a thread of its own; it must not throw.
  void run(unsigned count, const std::function<void(unsigned)>& work) {
    std::unique_lock lock(mutex_);
    for (auto number = static_cast<unsigned>(members_.size()); number < count; ++number) {
      members_.emplace_back([this, number, now = turn_] { serve(number, now); });
    }
    work_ = &work;
    wanted_ = working_ = count;
    ++turn_;
    begins_.notify_all();
    ended_.wait(lock, [this] { return working_ == 0; });
  }

 private:
  void serve(unsigned number, std::uint64_t last_turn) {
    std::unique_lock lock(mutex_);
    while (true) {
      begins_.wait(lock, [&] { return over_ || (turn_ != last_turn && number < wanted_); });
      if (over_) return;
      last_turn = turn_;
      lock.unlock();
      (*work_)(number);
      lock.lock();
      if (--working_ == 0) ended_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begins_;
  std::condition_variable ended_;
  std::uint64_t turn_ = 0;
  unsigned wanted_ = 0;   // threads in this turn
  unsigned working_ = 0;  // threads that have not finished it
  const std::function<void(unsigned)>* work_ = nullptr;
  bool over_ = false;
  std::vector<std::jthread> members_;
};

// State of each CPU thread, which runs one block at a time.
struct Grid {
  Threads threads;
  core::Random random{1};
  bool together = false;  // blocks that it launches run on threads of their own
  Crew crew;              // the threads that run them
  unsigned given_way = 0;
  unsigned waited = 0;  // threads of the block that have waited for the stream
};

Grid& the_grid() {
  static thread_local Grid grid;
  return grid;
}

// Other threads of the block ran in between.
void take_turn() {
  threadIdx.x = static_cast<unsigned>(the_grid().threads.current());
}

void run_block(const GridShape& shape, unsigned index, const std::function<void()>& body) {
  gridDim = dim3(shape.blocks);
  blockDim = dim3(shape.threads);
  blockIdx.x = index;
  auto* const shared = reinterpret_cast<std::byte*>(dynamic_shared_memory);
  std::fill(shared, shared + shape.shared_bytes, std::byte{0xff});
  Grid& grid = the_grid();
  grid.waited = 0;
  grid.threads.run(static_cast<int>(shape.threads), grid.random, [&](int /*thread*/) {
    take_turn();
    body();
  });
  if (shape.early && grid.waited != shape.threads)
    fail("a kernel that begins early waits for the stream in all threads");
}

void run_together(const GridShape& shape, const std::function<void()>& body) {
  std::vector<std::exception_ptr> failures(shape.blocks);
  std::vector<std::uint64_t> seeds(shape.blocks);
  for (std::uint64_t& seed : seeds) seed = the_grid().random.next();
  the_grid().crew.run(shape.blocks, [&](unsigned b) {
    set_order(seeds.at(b));
    try {
      run_block(shape, b, body);
    } catch (...) {
      failures.at(b) = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

void run_grid(const GridShape& shape, const std::function<void()>& body) {
  if (shape.blocks == 0 || shape.threads == 0) fail("an empty grid");
  if (shape.shared_bytes > kMostSharedBytes) fail(std::to_string(shape.shared_bytes) + " bytes of shared memory");
  if (the_grid().together) return run_together(shape, body);
  std::vector<unsigned> order(shape.blocks);
  std::iota(order.begin(), order.end(), 0U);
  core::Random& random = the_grid().random;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order.at(i - 1), order.at(random.below(i)));
  for (const unsigned b : order) run_block(shape, b, body);
}

void set_order(std::uint64_t seed) {
  the_grid().random = core::Random(seed);
}

void run_blocks_together() {
  the_grid().together = true;
}

void meet_block() {
  the_grid().threads.meet_block();
  take_turn();
}

void wait_for_stream() {
  ++the_grid().waited;
}

void give_way() {
  Grid& grid = the_grid();
  if (++grid.given_way % kWaysAYield == 0) std::this_thread::yield();
  grid.threads.give_way();
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
