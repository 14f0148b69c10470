// A device that runs programs of PTX: blocks, warps whose lanes may diverge, a scheduler that draws from a seed which
// warp goes on and when asynchronous work completes. Reports the first thing that hardware would do wrongly, or might.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/random.h"
#include "testing/cuda_stand_in/launch.h"
#include "testing/ptx/clock.h"
#include "testing/ptx/counts.h"
#include "testing/ptx/memory.h"
#include "testing/ptx/program.h"

namespace lockstep::ptx {

// A mistake of a kernel; the text names kernel, PTX line and source line.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Block;
class Machine;
struct LaunchState;

inline constexpr int kLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffU;

// Calls each(lane) for the bits of `lanes`.
template <class F>
void for_lanes(std::uint32_t lanes, F&& each) {
  for (; lanes != 0; lanes &= lanes - 1) each(__builtin_ctz(lanes));
}

// A word by which threads wait for each other in shared memory (PTX ISA, mbarrier).
struct MemoryBarrier {
  std::uint32_t count = 0;
  std::int64_t pending = 0;
  std::int64_t bytes = 0;
  std::uint32_t phase = 0;
  View arriving;              // in the current phase
  std::array<View, 2> ended;  // the last phases, by parity
  WarpId engine = 0;          // the copies that complete here
  std::uint32_t engine_time = 0;
  Access initialized_by;
};
// Begins the next phase if nothing is pending.
void complete_phase(MemoryBarrier& barrier);

// A barrier of a block's warps: bar, barrier.cta, or of all blocks of a cluster.
struct Meetpoint {
  std::uint32_t expected = 0;
  std::uint32_t arrived = 0;
  std::uint64_t generation = 0;
  bool any = false;  // bar.red.or
  View arriving;
  std::map<std::uint64_t, std::pair<View, bool>> ended;  // by generation; the last few
};

class Warp {
 public:
  Warp(Block& block, int index);

  // Runs up to `budget` instructions; false if it could not go on.
  bool turn(int budget);
  bool has_exited() const { return exited_ == kAllLanes; }
  std::string where() const;  // for reports of deadlocks

  // For instructions.
  template <class T>
  T get(Slot slot, int lane) const;
  template <class T>
  void set(Slot slot, int lane, T value);
  std::uint32_t& predicate(Slot slot) { return words_[slot.word]; }
  std::uint32_t* words32(Slot slot) { return &words_[slot.word]; }
  std::uint64_t* words64(Slot slot) { return reinterpret_cast<std::uint64_t*>(&words_[slot.word]); }
  std::uint64_t bits(Slot slot, int lane) const;  // zero-extended
  void set_bits(Slot slot, int lane, std::uint64_t value);
  std::uint32_t& poison(Slot slot) { return poison_[slot.index]; }
  void wrote(Slot slot) { writes_[slot.index] = stamps_[slot.index] = ++stamp_; }
  void read(Slot slot) { stamps_[slot.index] = ++stamp_; }
  void require_defined(Slot slot, std::uint32_t lanes, const char* what);

  // Memory. Addresses are generic, or of the operation's space.
  struct Place {
    std::byte* data;
    Shadow* shadow;      // null for parameters and constants
    std::size_t offset;  // in the shadow
    Block* block;        // that has the shared memory
    Allocation* global;
    Space space;
  };
  std::uint64_t address(const Op& op, Slot base, int lane) const;
  Place locate(Space space, std::uint64_t address, std::size_t bytes, int lane);
  void on_read(const Place& place, std::size_t bytes, int lane, const Op& op, Proxy proxy = Proxy::generic);
  void on_write(const Place& place, std::size_t bytes, int lane, const Op& op, Proxy proxy = Proxy::generic);
  void on_product_read(const Place& place, std::size_t bytes, const Op& op);
  bool is_ordered(const Access& earlier, int lane, Proxy proxy) const;
  Access access_of(const Op& op, int lane, Proxy proxy) const;

  // Order.
  void meet() {  // lanes of this warp have met
    ++time_;
    met_ = time_;
  }
  View released(std::uint32_t lanes);  // returns the view that a release by these lanes hands on
  void acquire(const View& view) { view_.join(view); }
  void strong_store(const Place& place, const Op& op, std::uint32_t lanes, bool keeps_earlier);
  void strong_load(const Place& place, const Op& op);
  void fence(Scope scope, std::uint32_t lanes);
  void fence_proxy(std::uint32_t lanes);

  [[noreturn]] void fault(const std::string& what) const;  // at the current instruction
  Machine& machine() const;
  Block& block() const { return block_; }
  int index() const { return index_; }
  WarpId id() const { return id_; }
  std::uint32_t live() const { return ~exited_; }
  const Op& current() const;

  void polled(bool found_something_new);  // a look at a word that others change
  void yield() { yields_ = true; }

  // Where a warp stands at a Meetpoint.
  struct Waiting {
    bool arrived = false;
    std::uint64_t generation = 0;
  } waiting;
  Waiting waiting_cluster;

  // cp.async of each lane: copies whose group has not been waited for.
  struct Copy {
    int lane;
    std::uint32_t group;
    Block* block;
    std::size_t to;
    std::uint64_t from;
    std::size_t bytes;       // written
    std::size_t read_bytes;  // the rest is zeros
    bool done;
    const Op* op;
  };
  std::deque<Copy> copies;
  std::array<std::uint32_t, kLanes> groups{};  // committed

  // Products (wgmma) that have not been waited for.
  struct Product {
    std::function<void()> compute;
    std::vector<Slot> sums;
    std::uint32_t group;
    std::uint32_t time;
    std::uint32_t stamp;
    std::vector<Slot> factors = {};
    bool done = false;
  };
  std::deque<Product> products;
  std::uint32_t product_groups = 0;
  std::uint32_t product_time = 1;
  WarpId product_id() const { return id_ + 1; }
  std::uint32_t fence_stamp = 0;
  bool has_fenced_products = false;
  std::uint32_t stamp_of(Slot slot) const { return stamps_[slot.index]; }
  std::uint32_t now_stamp() const { return stamp_; }
  void compute_products(std::size_t leave);
  void wait_for_products(std::uint32_t leave_groups);

  std::vector<std::byte> local;  // [lane][local_bytes]
  std::uint32_t idle_polls = 0;  // looks that found nothing new, since the last that did
  bool computes = false;         // has run something other than such looks since this was last cleared

 private:
  std::uint32_t choose_lanes();
  std::uint32_t with_those_who_are_here(std::uint32_t lanes) const;
  bool have_met(const Op& op, std::uint32_t lanes);
  void exit(std::uint32_t lanes);
  void check_pair(const Access& earlier, int lane, const Op& op, Proxy proxy, const char* does, const char* did,
                  Space space) const;
  void at(int pc, std::uint32_t lanes);
  friend class Machine;

  Block& block_;
  int index_;
  WarpId id_;
  std::vector<std::uint32_t> words_;
  std::vector<std::uint32_t> poison_;
  std::vector<std::uint32_t> stamps_;  // each register's last access, where a program has products
  std::vector<std::uint32_t> writes_;  // each register's last write
  std::uint32_t stamp_ = 0;
  std::array<int, kLanes> pc_{};
  std::uint32_t exited_ = 0;
  std::uint32_t parked_ = 0;  // lanes at a meeting that others have not reached
  int current_ = 0;
  bool yields_ = false;
  View view_;
  std::uint32_t time_ = 1;
  std::uint32_t met_ = 1;
  struct Fenced {
    View view;
    Scope scope = Scope::none;
  } fenced_;
  std::vector<Allocation::Release> seen_;  // by relaxed loads, for the next fence
};

class Block {
 public:
  Block(LaunchState& launch, std::uint64_t number, std::uint32_t rank_in_cluster);
  cuda_stand_in::Extent index() const;
  bool has_ended() const;

  LaunchState& launch;
  std::uint64_t number;    // in the grid
  std::uint32_t rank;      // in its cluster
  int multiprocessor = 0;  // on which it is
  std::int32_t id;         // unique
  std::vector<Block*> cluster;
  std::vector<std::byte> shared;
  Shadow shadow;
  std::vector<std::unique_ptr<Warp>> warps;
  std::array<Meetpoint, 16> barriers;
  std::map<std::uint32_t, MemoryBarrier> memory_barriers;  // by offset
  std::map<std::uintptr_t, std::vector<Allocation::Release>> released;
  std::uint32_t exited_threads = 0;
  std::uint32_t num_threads;
};

// Ends barriers that wait only for threads that have exited.
void end_barriers_of_exited(Block& block);

struct LaunchState {
  LaunchState(Machine& its_machine, cuda_stand_in::Launch its_launch, std::shared_ptr<const Program> its_program,
              std::int32_t its_id)
      : machine(its_machine),
        launch(std::move(its_launch)),
        program(std::move(its_program)),
        id(its_id),
        executed(program->ops().size()) {}

  Machine& machine;
  cuda_stand_in::Launch launch;
  std::shared_ptr<const Program> program;
  std::int32_t id;
  std::uint64_t next_block = 0;
  std::uint64_t num_ended = 0;
  std::vector<std::unique_ptr<Block>> running;
  std::map<std::uint64_t, Meetpoint> cluster_barriers;  // by number of the cluster
  std::set<std::int32_t> concurrent;                    // launches that nothing orders with this one
  Counts counts;
  std::vector<std::uint64_t> executed;  // by warps, each operation of the program
};

struct Options {
  std::uint64_t seed = 1;
  int multiprocessors = 132;
  std::size_t shared_bytes_per_multiprocessor = 228 * 1024;
  int threads_per_multiprocessor = 2048;
  bool check_races = true;
  // For counts, which must not depend on the seed: lanes that are furthest behind always go first, and a wait at a
  // barrier in shared memory takes one instruction, however long it is.
  bool steady = false;
  // How long the host may take to launch or store what waiting kernels wait for; then waiting is a deadlock.
  std::chrono::milliseconds patience{0};
};

class Machine {
 public:
  explicit Machine(const Options& options) : options_(options), random_(options.seed) { reset(); }

  void begin(const cuda_stand_in::Launch& launch, std::shared_ptr<const Program> program);
  // Goes on for some turns; returns the launches that ended, with what they counted.
  struct Ended {
    std::uint64_t number;
    Counts counts;
    std::vector<std::uint64_t> executed;
  };
  std::vector<Ended> run(int turns);
  bool is_running(std::uint64_t number) const { return running_.count(number) > 0; }
  bool idle() const { return running_.empty(); }
  void reset();  // after a fault

  // Whether an instruction that was changed on purpose has run.
  bool reached_mutant() const { return reached_mutant_; }
  void reach_mutant() { reached_mutant_ = true; }

  GlobalMemory& memory() { return memory_; }
  core::Random& random() { return random_; }
  const Options& options() const { return options_; }
  std::uint64_t nanoseconds();
  void progressed() { ++progress_; }
  WarpId new_warps(Block& block, int index);  // two numbers: of its lanes, and of its products
  struct Owner {
    std::int32_t block = 0;  // its id
    std::int32_t launch = 0;
    std::uint64_t block_number = 0;
    int warp = 0;  // its index in the block
  };
  Owner owner_of(WarpId id) const { return owners_[id]; }
  std::int32_t new_block_id() { return ++blocks_; }
  // Completes at some later turn.
  void later(std::function<void()> work) { in_flight_.push_back(std::move(work)); }

 private:
  // Room on a multiprocessor.
  struct Room {
    std::size_t shared_bytes = 0;
    std::uint64_t threads = 0;
    int blocks = 0;
  };
  void start_blocks(LaunchState& launch);
  std::vector<int> places_for(const LaunchState& launch);
  void take(const LaunchState& launch, int multiprocessor);
  void give_back(const Block& block);
  bool has_room(const LaunchState& launch, int multiprocessor) const;
  void complete_some();
  void collect(std::vector<Ended>& ended);
  void watch_progress();
  [[noreturn]] void report_deadlock();

  Options options_;
  core::Random random_;
  GlobalMemory memory_;
  std::map<std::uint64_t, std::unique_ptr<LaunchState>> running_;
  std::vector<Room> rooms_;  // [multiprocessor]
  std::vector<std::function<void()>> in_flight_;
  std::vector<Owner> owners_{1};
  std::int32_t blocks_ = 0;
  std::int32_t launches_ = 0;
  std::uint64_t progress_ = 0;
  std::uint64_t last_progress_ = 0;
  std::uint64_t instructions_ = 0;
  std::uint64_t stalled_turns_ = 0;
  std::chrono::steady_clock::time_point stalled_since_{};
  bool reached_mutant_ = false;
  std::size_t window_ = 0;  // blocks that take turns, until all of them wait
};

template <class T>
T Warp::get(Slot slot, int lane) const {
  const std::uint64_t value = bits(slot, lane);
  T result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}
template <class T>
void Warp::set(Slot slot, int lane, T value) {
  std::uint64_t wide = 0;
  std::memcpy(&wide, &value, sizeof value);
  set_bits(slot, lane, wide);
}
inline std::uint64_t Warp::bits(Slot slot, int lane) const {
  if (slot.bytes == 8) return reinterpret_cast<const std::uint64_t*>(&words_[slot.word])[lane];
  if (slot.bytes == 0) return words_[slot.word] >> lane & 1U;
  return words_[slot.word + static_cast<std::uint32_t>(lane)];
}
inline void Warp::set_bits(Slot slot, int lane, std::uint64_t value) {
  if (slot.bytes == 8) {
    reinterpret_cast<std::uint64_t*>(&words_[slot.word])[lane] = value;
  } else if (slot.bytes == 0) {
    words_[slot.word] = (words_[slot.word] & ~(1U << lane)) | (static_cast<std::uint32_t>(value & 1U) << lane);
  } else {
    words_[slot.word + static_cast<std::uint32_t>(lane)] = static_cast<std::uint32_t>(value);
  }
}

}  // namespace lockstep::ptx
