// Lanes of emulated Hopper kernels with one deliberate mistake each, which a test of a kernel must detect. Warpgroup 0
// is the producer, the others are consumers.
#pragma once

#include <cstdint>

#include "kernels/emulated_cuda/emulated_hopper.h"

namespace lockstep::kernels {

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
