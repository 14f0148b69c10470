#include "testing/emulated_cuda/emulated_grid.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "testing/emulated_cuda/cuda_runtime.h"
#include "testing/emulated_cuda/emulated_threads.h"

// The array that cuda_loops.cuh declares as dynamic shared memory.
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

constexpr unsigned kWaysPerYield = 64;  // yields among a block's threads until other blocks get the core

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

// The blocks of a cluster. Each has a CPU thread of its own; one runs at a time, until it waits for the others or
// exits.
class Cluster {
 public:
  Cluster(unsigned blocks, std::uint64_t seed) : blocks_(blocks), random_(seed), states_(blocks), shared_(blocks) {
    const std::lock_guard lock(mutex_);
    draw();
  }

  unsigned blocks() const { return blocks_; }
  void begin(unsigned rank) {
    std::unique_lock lock(mutex_);
    shared_.at(rank) = reinterpret_cast<std::byte*>(dynamic_shared_memory);
    wait_for_turn(rank, lock);
  }
  void meet(unsigned rank) {
    std::unique_lock lock(mutex_);
    states_.at(rank) = State::waits;
    draw();
    wait_for_turn(rank, lock);
  }
  void end(unsigned rank) {
    const std::lock_guard lock(mutex_);
    states_.at(rank) = State::ended;
    draw();
  }
  // Shared memory is thread-local, and its offsets from dynamic_shared_memory are the same in all threads.
  const void* shared_of(const void* mine, unsigned rank) {
    const std::lock_guard lock(mutex_);
    if (rank >= blocks_) fail("a cluster has no block " + std::to_string(rank));
    if (shared_.at(rank) == nullptr) fail("shared memory is read of a block that has not begun");
    if (states_.at(rank) == State::ended) fail("shared memory is read of a block that has ended");
    return shared_.at(rank) +
           (static_cast<const std::byte*>(mine) - reinterpret_cast<const std::byte*>(dynamic_shared_memory));
  }

 private:
  enum class State : std::uint8_t { runs, waits, ended };

  void wait_for_turn(unsigned rank, std::unique_lock<std::mutex>& lock) {
    turns_.wait(lock, [&] { return turn_ == rank; });
  }
  // Nobody waits for blocks that have exited, as on the device. The caller holds the mutex.
  void draw() {
    if (std::count(states_.begin(), states_.end(), State::runs) == 0) {
      std::replace(states_.begin(), states_.end(), State::waits, State::runs);
    }
    std::vector<unsigned> ready;
    for (unsigned b = 0; b < blocks_; ++b) {
      if (states_.at(b) == State::runs) ready.push_back(b);
    }
    if (!ready.empty()) turn_ = ready.at(random_.below(ready.size()));
    turns_.notify_all();
  }

  unsigned blocks_;
  core::Random random_;
  std::mutex mutex_;
  std::condition_variable turns_;
  unsigned turn_ = 0;
  std::vector<State> states_;
  std::vector<std::byte*> shared_;
};

struct Copy {
  void* to;
  const void* from;
  std::size_t size_bytes;
  void run() const { std::memcpy(to, from, size_bytes); }
};
// The copies that a thread has started; the last group is still open.
using CopyGroups = std::vector<std::vector<Copy>>;

// State of each CPU thread, which runs one block at a time.
struct Grid {
  Threads threads;
  core::Random random{1};
  bool together = false;  // blocks that it launches run on threads of their own
  Crew crew;              // the threads that run them
  unsigned given_way = 0;
  unsigned waited = 0;  // threads of the block that have waited for the stream
  int most_cluster_blocks = 8;
  std::map<const void*, std::size_t> dynamic_shared_of;  // [kernel]: bytes that were requested for it
  Cluster* cluster = nullptr;                            // the cluster of the block, if it has several blocks
  std::vector<CopyGroups> copies;                        // for each thread of the block
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
  grid.copies.assign(shape.threads, CopyGroups(1));
  grid.threads.run(static_cast<int>(shape.threads), grid.random, [&](int /*thread*/) {
    take_turn();
    body();
  });
  if (shape.early && grid.waited != shape.threads)
    fail("a kernel that begins early waits for the stream in all threads");
}

// Runs block(0) .. block(count - 1), each on its own CPU thread.
void run_apart(unsigned count, const std::function<void(unsigned)>& block) {
  std::vector<std::exception_ptr> failures(count);
  std::vector<std::uint64_t> seeds(count);
  for (std::uint64_t& seed : seeds) seed = the_grid().random.next();
  the_grid().crew.run(count, [&](unsigned b) {
    set_order(seeds.at(b));
    try {
      block(b);
    } catch (...) {
      failures.at(b) = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

void run_cluster(const GridShape& shape, unsigned first, const std::function<void()>& body) {
  Cluster cluster(shape.cluster, the_grid().random.next());
  run_apart(shape.cluster, [&](unsigned rank) {
    cluster.begin(rank);
    the_grid().cluster = &cluster;
    std::exception_ptr failure;
    try {
      run_block(shape, first + rank, body);
    } catch (...) {
      failure = std::current_exception();
    }
    the_grid().cluster = nullptr;
    cluster.end(rank);
    if (failure) std::rethrow_exception(failure);
  });
}

}  // namespace

void run_grid(const GridShape& shape, const std::function<void()>& body) {
  if (shape.blocks == 0 || shape.threads == 0) fail("an empty grid");
  if (shape.shared_bytes > kMostSharedBytes) fail(std::to_string(shape.shared_bytes) + " bytes of shared memory");
  if (shape.cluster == 0 || shape.blocks % shape.cluster != 0) fail("a grid is not of whole clusters");
  if (static_cast<int>(shape.cluster) > the_grid().most_cluster_blocks) fail("a cluster has too many blocks");
  if (the_grid().together) return run_apart(shape.blocks, [&](unsigned b) { run_block(shape, b, body); });
  std::vector<unsigned> order(shape.blocks / shape.cluster);
  std::iota(order.begin(), order.end(), 0U);
  core::Random& random = the_grid().random;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order.at(i - 1), order.at(random.below(i)));
  for (const unsigned c : order) {
    if (shape.cluster == 1) {
      run_block(shape, c, body);
    } else {
      run_cluster(shape, c * shape.cluster, body);
    }
  }
}

void set_order(std::uint64_t seed) {
  the_grid().random = core::Random(seed);
}

void run_blocks_together() {
  the_grid().together = true;
}

void set_most_cluster_blocks(int blocks) {
  the_grid().most_cluster_blocks = blocks;
}

void allow_dynamic_shared(const void* kernel, std::size_t dynamic_bytes) {
  the_grid().dynamic_shared_of[kernel] = dynamic_bytes;
}

bool may_launch(const void* kernel, std::size_t dynamic_bytes) {
  constexpr std::size_t kWithoutRequest = (std::size_t{48} << 10) - kStaticSharedBytes;
  const auto allowed = the_grid().dynamic_shared_of.find(kernel);
  return dynamic_bytes <=
         std::max(kWithoutRequest, allowed == the_grid().dynamic_shared_of.end() ? 0 : allowed->second);
}

int most_cluster_blocks() {
  return the_grid().most_cluster_blocks;
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
  if (++grid.given_way % kWaysPerYield == 0) std::this_thread::yield();
  grid.threads.give_way();
  take_turn();
}

void copy_async(void* to, const void* from, int size_bytes) {
  Grid& grid = the_grid();
  const Copy copy{to, from, static_cast<std::size_t>(size_bytes)};
  if (reinterpret_cast<std::uintptr_t>(to) % copy.size_bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % copy.size_bytes != 0) {
    fail("an asynchronous copy is not aligned");
  }
  if (grid.random.below(2) == 0) return copy.run();
  grid.copies.at(threadIdx.x).back().push_back(copy);
}

void end_copy_group() {
  the_grid().copies.at(threadIdx.x).emplace_back();
}

void wait_for_copies(std::size_t groups_under_way) {
  CopyGroups& groups = the_grid().copies.at(threadIdx.x);
  while (groups.size() - 1 > groups_under_way) {
    for (const Copy& copy : groups.front()) copy.run();
    groups.erase(groups.begin());
  }
}

unsigned cluster_blocks() {
  return the_grid().cluster == nullptr ? 1 : the_grid().cluster->blocks();
}

void meet_cluster() {
  meet_block();
  Cluster* const cluster = the_grid().cluster;
  if (cluster != nullptr && threadIdx.x == 0) cluster->meet(blockIdx.x % cluster->blocks());
  meet_block();
}

const void* shared_of_peer(const void* mine, unsigned rank) {
  Cluster* const cluster = the_grid().cluster;
  if (cluster == nullptr) return mine;
  return cluster->shared_of(mine, rank);
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
