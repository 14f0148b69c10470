// A block of a Hopper kernel on the CPU: the operations of HopperLane (hopper_lane.cuh) on a model of the hardware that
// refuses what the hardware would do wrongly. Threads are the coroutines of emulated_threads.h, in an order drawn from
// the seed; asynchronous operations complete at times drawn from it.
//   barriers     counts of arrivals and bytes, phases; PTX ISA, "mbarrier"
//   copies       of boxes, swizzled, zeros outside; their target is NaN until they complete, which counts their bytes
//   products     read shared memory through descriptors, at some time between their issue and the wait for them; their
//                sums are NaN in between. Sums and factors have the thread layout of PTX ISA's figures of wgmma
//   stores       to shared memory are visible to products once their thread has published them
// Refused are, among others: a product that reads, or a store over, a copy whose phase its thread has not waited for; a
// copy over data that a product may still read or that has never been read; a product after registers could change,
// without begin_products(); sums or factors that change while in flight; arguments that differ within a warpgroup;
// named barriers with different numbers of threads; a wait that cannot end; anything left over when the block ends.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/random.h"
#include "kernels/base/tensor_map.h"
#include "testing/emulated_cuda/emulated_block.h"

namespace lockstep::kernels {

class EmulatedHopperLane;

class EmulatedHopperBlock {
 public:
  static constexpr int kGroup = 128;  // threads of a warpgroup
  struct Options {
    int threads = 384;
    int shared_bytes = 0;
    std::uint64_t seed = 1;
  };
  explicit EmulatedHopperBlock(const Options& options);

  // Runs body(lane, index of its block) as each thread of blocks that run at the same time. Lane is EmulatedHopperLane,
  // or a test's lane with a deliberate mistake.
  template <class Lane, class Body>
  static void run(std::deque<EmulatedHopperBlock>& blocks, emulated::Threads& threads, const Body& body) {
    const int block_threads = blocks.front().options_.threads;
    const int all = block_threads * static_cast<int>(blocks.size());
    threads.run(all, blocks.front().random_, [&](int thread) {
      const auto index = static_cast<std::size_t>(thread / block_threads);
      Lane lane(blocks.at(index), threads, thread % block_threads);
      body(lane, index);
      end_of(lane);
    });
    for (const EmulatedHopperBlock& block : blocks) block.check_end();
  }

  // Runs body(lane, number of its block) for the blocks of a grid, this many at a time.
  template <class Lane, class Body>
  static void run_grid(std::int64_t blocks, std::int64_t together, const Options& options, const Body& body) {
    emulated::Threads threads;
    for (std::int64_t first = 0; first < blocks; first += together) {
      std::deque<EmulatedHopperBlock> some;
      for (std::int64_t block = first; block < std::min(blocks, first + together); ++block) {
        some.emplace_back(Options{.threads = options.threads,
                                  .shared_bytes = options.shared_bytes,
                                  .seed = core::hash64(options.seed, static_cast<std::uint64_t>(block))});
      }
      run<Lane>(some, threads,
                [&](Lane& lane, std::size_t index) { body(lane, first + static_cast<std::int64_t>(index)); });
    }
  }

 private:
  friend class EmulatedHopperLane;
  struct Range {  // a range of shared memory
    std::uint32_t begin;
    std::uint32_t end;
    bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
  };
  struct Barrier {
    int count;
    int pending;
    std::int64_t bytes = 0;
    std::uint32_t phase = 0;  // the current phase
    bool published = false;
  };
  struct Copy {
    HeadTensor from;
    Range to;
    std::uint32_t barrier;
    std::array<std::int64_t, 4> at;  // batch, row, head, column
  };
  // A box that has been or will be copied, and the phase whose end shows that it has arrived.
  struct Brought {
    Range range;
    std::uint32_t barrier;
    std::uint32_t phase;
    bool was_read = false;
  };
  struct Factors {  // a product's factors, as given by one thread
    std::uint64_t a;
    std::uint64_t b;
    bool a_in_registers;
    bool transposed_a;
    bool transposed_b;
    bool add;
    int columns;
    bool operator==(const Factors&) const = default;
  };
  struct Product {
    Factors factors;
    std::vector<Range> reads;
    std::array<std::vector<float>*, kGroup> sums = {};
    std::array<std::array<std::uint32_t, 4>, kGroup> a = {};
    int issued = 0;
    int delivered = 0;
    unsigned warps_waited = 0;  // one bit each
    bool done = false;
    float (*value)(std::uint16_t bits) = nullptr;
  };
  struct Group {
    std::deque<Product> products;  // from number `first` on
    std::size_t first = 0;
  };
  struct Meeting {
    int threads = 0;
    int arrived = 0;
    std::vector<int> who = {};
    std::uint64_t turn = 0;
  };

  static void end_of(EmulatedHopperLane& lane);
  void check_not_read(const Range& range, const char* what) const;
  void check_end() const;
  void let_time_pass();
  void end_copy(std::size_t index);
  Barrier& barrier_at(std::uint32_t address);
  void end_phase_if_complete(Barrier& barrier);
  void arrive(std::uint32_t barrier);
  void compute(Product& product);
  void compute_until(Group& group, std::size_t number);
  std::byte* memory_at(std::uint32_t address, std::uint32_t size);
  std::uint16_t element_at(std::uint32_t address);

  Options options_;
  core::Random random_;
  EmulatedBlock plain_;
  std::vector<std::byte> memory_;
  std::map<std::uint32_t, Barrier> barriers_;
  std::vector<Copy> copies_;  // in flight
  std::vector<Brought> brought_;
  std::vector<Group> groups_;
  std::map<int, Meeting> meetings_;
  std::map<std::uint32_t, int> unpublished_;  // address of words that a thread has stored
  std::uint64_t hurry_;                       // in each step, one in this many copies ends
  std::int64_t idle_ = 0;
  int free_registers_ = 0;
};

class EmulatedHopperLane : public EmulatedLane {
 public:
  using Map = HeadTensor;
  EmulatedHopperLane(EmulatedHopperBlock& block, emulated::Threads& threads, int thread);

  int group() const { return thread() / EmulatedHopperBlock::kGroup; }
  // Not 0, so that mistaking an offset for an address is detected.
  std::uint32_t window() const { return kWindow; }

  void sync() { meet_as(0, hopper_threads()); }  // replaces EmulatedLane's, which is for all running threads
  void begin_barrier(std::uint32_t barrier, int count);
  void publish_barriers();
  void arrive(std::uint32_t barrier);
  void arrive_expecting(std::uint32_t barrier, int bytes);
  void wait(std::uint32_t barrier, std::uint32_t parity);
  void load_box(std::uint32_t to, const HeadTensor& map, std::uint32_t barrier, int column, int head, int row,
                int batch);

  template <int kRegisters>
  void give_registers() {
    change_registers(kRegisters, false);
  }
  template <int kRegisters>
  void take_registers() {
    change_registers(kRegisters, true);
  }

  void meet(int id, int threads) { meet_as(id, threads); }
  void arrive_at_meeting(int id, int threads);

  struct Four {
    float at[4];
  };
  void store_shared(std::uint32_t to, std::uint32_t word);
  void store_shared(std::uint32_t to, float first, float second);
  void clear_sixteen(std::uint32_t to);
  std::uint32_t load_shared(std::uint32_t from);
  Four load_four(std::uint32_t from);
  void publish_stores();

  static std::uint32_t take_ticket(std::uint32_t* counter) { return (*counter)++; }
  void wait_for_turn(const std::uint32_t* counter, std::uint32_t turn);
  static void pass_turn(std::uint32_t* counter) { ++*counter; }
  static void store_two(float* to, float first, float second);
  static void add_two(float* to, float first, float second);

  void begin_products() { may_multiply_ = true; }
  void commit_products() { committed_.push_back(issued_); }
  template <int kPending>
  void wait_for_products() {
    wait_for_all_but(kPending);
  }
  template <int kBlocks>
  void settle(float (&sums)[kBlocks][4]) {
    check_settled(&sums[0][0]);
  }

  template <class T, bool kTransposedA, bool kTransposedB, int kBlocks>
  void multiply(float (&d)[kBlocks][4], std::uint64_t a, std::uint64_t b, int add) {
    issue({a, b, false, kTransposedA, kTransposedB, add != 0, 8 * kBlocks}, &d[0][0], nullptr, value_of<T>);
  }
  template <class T, bool kTransposedB, int kBlocks>
  void multiply(float (&d)[kBlocks][4], const std::uint32_t (&a)[4], std::uint64_t b, int add) {
    issue({0, b, true, false, kTransposedB, add != 0, 8 * kBlocks}, &d[0][0], a, value_of<T>);
  }

 private:
  friend class EmulatedHopperBlock;
  static constexpr std::uint32_t kWindow = 2048;
  // Sums of products in flight, which are the registers of the instruction.
  struct Flight {
    std::vector<float> sums;
    std::size_t last;  // number of the last product
  };
  struct HeldFactors {
    const std::uint32_t* registers;
    std::array<std::uint32_t, 4> words;
    std::size_t product;
  };

  template <class T>
  static float value_of(std::uint16_t bits) {
    return widen(T{bits});
  }
  int hopper_threads() const { return hopper_.options_.threads; }
  void meet_as(int id, int threads);
  void until(const std::string& what, const std::function<bool()>& come);
  void change_registers(int registers, bool more);
  void issue(const EmulatedHopperBlock::Factors& factors, float* d, const std::uint32_t* a,
             float (*value)(std::uint16_t bits));
  void wait_for_all_but(std::size_t pending);
  void deliver(std::size_t end);
  static void check_untouched(const float* d, std::size_t elems);
  void check_settled(const float* d) const;

  EmulatedHopperBlock& hopper_;
  emulated::Threads& threads_of_block_;
  std::map<std::uint32_t, std::uint32_t> seen_;  // [barrier] phases that this thread knows to have ended
  std::map<float*, Flight> flights_;
  std::vector<HeldFactors> held_;
  std::vector<std::size_t> committed_;  // number of products issued before each commit
  std::size_t issued_ = 0;
  std::size_t waited_ = 0;
  bool may_multiply_ = false;
  int registers_ = 0;
};

// Lanes with one deliberate mistake each, which a test of a kernel must detect. Warpgroup 0 is the producer, the others
// are consumers.

struct ConsumersDoNotWait : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void wait(std::uint32_t barrier, std::uint32_t parity) {
    if (group() == 0) EmulatedHopperLane::wait(barrier, parity);
  }
};
struct ProducerDoesNotWait : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void wait(std::uint32_t barrier, std::uint32_t parity) {
    if (group() != 0) EmulatedHopperLane::wait(barrier, parity);
  }
};
struct ConsumersTakeTheWrongPhase : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void wait(std::uint32_t barrier, std::uint32_t parity) {
    EmulatedHopperLane::wait(barrier, group() == 0 ? parity : parity ^ 1);
  }
};
struct ProducerTakesTheWrongPhase : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void wait(std::uint32_t barrier, std::uint32_t parity) {
    EmulatedHopperLane::wait(barrier, group() == 0 ? parity ^ 1 : parity);
  }
};
struct ExpectsHalfOfTheBytes : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void arrive_expecting(std::uint32_t barrier, int bytes) { EmulatedHopperLane::arrive_expecting(barrier, bytes / 2); }
};
struct OneWarpReleasesNothing : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void arrive(std::uint32_t barrier) {
    if (warp() != 7) EmulatedHopperLane::arrive(barrier);
  }
};
struct OneWarpReleasesTwice : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void arrive(std::uint32_t barrier) {
    EmulatedHopperLane::arrive(barrier);
    if (warp() == 7) EmulatedHopperLane::arrive(barrier);
  }
};
struct BarriersAreNotPublished : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void publish_barriers() {}
};
struct DoesNotWaitForProducts : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  template <int kPending>
  void wait_for_products() {}
};
// A buffer is released, and sums are used, while a group of products is still in flight.
struct WaitsForOneGroupLess : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  template <int kPending>
  void wait_for_products() {
    EmulatedHopperLane::wait_for_products<kPending + 1>();
  }
  template <int kBlocks>
  void settle(float (&/*sums*/)[kBlocks][4]) {}
};
struct ProductsAreNotBegun : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void begin_products() {}
};
struct NobodyGivesRegisters : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  template <int kRegisters>
  void give_registers() {}
};
struct BoxesLieBesideThePattern : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void load_box(std::uint32_t to, const HeadTensor& map, std::uint32_t barrier, int column, int head, int row,
                int batch) {
    EmulatedHopperLane::load_box(to + 512, map, barrier, column, head, row, batch);
  }
};
// The second descriptor of each product is xored with kFlip.
template <std::uint64_t kFlip>
struct WrongDescriptor : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  template <class T, bool kTransposedA, bool kTransposedB, int kBlocks>
  void multiply(float (&d)[kBlocks][4], std::uint64_t a, std::uint64_t b, int add) {
    EmulatedHopperLane::multiply<T, kTransposedA, kTransposedB>(d, a, b ^ kFlip, add);
  }
  template <class T, bool kTransposedB, int kBlocks>
  void multiply(float (&d)[kBlocks][4], const std::uint32_t (&a)[4], std::uint64_t b, int add) {
    EmulatedHopperLane::multiply<T, kTransposedB>(d, a, b ^ kFlip, add);
  }
};
using WrongSwizzle = WrongDescriptor<std::uint64_t{3} << 62>;
using WrongStride = WrongDescriptor<std::uint64_t{64 ^ 32} << 32>;
using WrongRow = WrongDescriptor<8>;
struct StoresAreNotPublished : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void publish_stores() {}
};
struct ConsumersDoNotMeet : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void meet(int /*id*/, int /*threads*/) {}
};

}  // namespace lockstep::kernels
