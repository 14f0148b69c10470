#include "kernels/emulated_cuda/emulated_grid.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "kernels/emulated_cuda/cuda_runtime.h"

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

constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr unsigned kWarp = 32;

[[noreturn]] void fail(const std::string& what) {
  throw core::Error(core::Failure::internal, "emulated grid: " + what);
}

// Threads that wait for each other.
struct Meeting {
  std::size_t members = 0;
  std::vector<unsigned> waiting = {};
};

struct Thread {
  ucontext_t context = {};
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
  unsigned exchanges = 0;
};

struct Warp {
  Meeting meeting;
  std::array<std::array<std::uint64_t, kWarp>, 2> words = {};  // of two exchanges in turn
};

// One block runs at a time; its threads' stacks are kept for the next.
class Block {
 public:
  void run(unsigned num_threads, const std::function<void()>& body);
  void meet_block() { meet(all_); }
  std::uint64_t exchange(std::uint64_t mine, int mask);
  core::Random random{1};

 private:
  static void enter();
  void start(unsigned thread);
  void meet(Meeting& meeting);

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Meeting all_;
  ucontext_t scheduler_ = {};
  const std::function<void()>* body_ = nullptr;
  std::vector<unsigned> ready_;
  unsigned current_ = 0;
  unsigned unfinished_ = 0;
  std::exception_ptr error_ = nullptr;
};

Block& the_block() {
  static thread_local Block block;
  return block;
}

void Block::enter() {
  Block& block = the_block();
  try {
    (*block.body_)();
  } catch (...) {
    if (!block.error_) block.error_ = std::current_exception();
  }
  --block.unfinished_;
}

void Block::start(unsigned thread) {
  Thread& started = threads_.at(thread);
  started.exchanges = 0;
  getcontext(&started.context);
  started.context.uc_stack.ss_sp = started.stack.get();
  started.context.uc_stack.ss_size = kStackBytes;
  started.context.uc_link = &scheduler_;
  makecontext(&started.context, &Block::enter, 0);
  ready_.push_back(thread);
}

void Block::run(unsigned num_threads, const std::function<void()>& body) {
  while (threads_.size() < num_threads) threads_.emplace_back();
  warps_.assign((num_threads + kWarp - 1) / kWarp, Warp{{.members = std::min(kWarp, num_threads)}});
  all_ = {.members = num_threads};
  body_ = &body;
  error_ = nullptr;
  unfinished_ = num_threads;
  ready_.clear();
  for (unsigned t = 0; t < num_threads; ++t) start(t);
  while (!ready_.empty() && !error_) {
    std::swap(ready_.at(random.below(ready_.size())), ready_.back());
    current_ = ready_.back();
    ready_.pop_back();
    threadIdx.x = current_;
    swapcontext(&scheduler_, &threads_.at(current_).context);
  }
  if (error_) std::rethrow_exception(error_);
  if (unfinished_ > 0) fail(std::to_string(unfinished_) + " threads wait for others for ever");
}

void Block::meet(Meeting& meeting) {
  meeting.waiting.push_back(current_);
  if (meeting.waiting.size() == meeting.members) {
    ready_.insert(ready_.end(), meeting.waiting.begin(), meeting.waiting.end());
    meeting.waiting.clear();
  }
  swapcontext(&threads_.at(current_).context, &scheduler_);
}

std::uint64_t Block::exchange(std::uint64_t mine, int mask) {
  Warp& warp = warps_.at(current_ / kWarp);
  auto& words = warp.words.at(threads_.at(current_).exchanges++ % 2);
  const unsigned lane = current_ % kWarp;
  words.at(lane) = mine;
  meet(warp.meeting);
  return words.at(lane ^ static_cast<unsigned>(mask));
}

}  // namespace

void run_grid(const GridShape& shape, const std::function<void()>& body) {
  if (shape.blocks == 0 || shape.threads == 0) fail("an empty grid");
  if (shape.shared_bytes > kMostSharedBytes) fail(std::to_string(shape.shared_bytes) + " bytes of shared memory");
  std::vector<unsigned> order(shape.blocks);
  std::iota(order.begin(), order.end(), 0U);
  Block& block = the_block();
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order.at(i - 1), order.at(block.random.below(i)));
  gridDim = dim3(shape.blocks);
  blockDim = dim3(shape.threads);
  for (const unsigned b : order) {
    blockIdx.x = b;
    auto* const shared = reinterpret_cast<std::byte*>(dynamic_shared_memory);
    std::fill(shared, shared + shape.shared_bytes, std::byte{0xff});
    block.run(shape.threads, body);
  }
}

void set_order(std::uint64_t seed) {
  the_block().random = core::Random(seed);
}

void meet_block() {
  the_block().meet_block();
}

std::uint64_t exchange(std::uint64_t mine, int mask) {
  return the_block().exchange(mine, mask);
}

}  // namespace lockstep::kernels::emulated
