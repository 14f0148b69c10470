// Runs the unchanged Hopper kernels of attention on a model of a Hopper block (emulated_hopper.h): descriptors,
// swizzles, fragments, the barrier protocol, masks and tails, with the checks that they must pass on a device. Also
// tests that the model detects mistakes. cuda_kernels_gpu_test runs them on a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "core/random.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_hopper_backward.cuh"
#include "kernels/attention/attention_hopper_forward.cuh"
#include "kernels/base/view.h"
#include "kernels/registry.h"
#include "testing/emulated_cuda/emulated_hopper.h"
#include "testing/kernels/attention_shapes.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

const auto as_it_is = [](const HeadTensor& tensor) { return tensor; };

// Corresponds to the launches of attention_hopper.cu.
template <class Lane, class T, int kColumns>
void run_columns(const AttentionForward& args, std::uint64_t seed) {
  using Tiles = HopperForwardTiles<T, kColumns>;
  const auto operands = hopper_operands<Tiles, HeadTensor>(args, as_it_is);
  EmulatedHopperBlock::run_grid<Lane>(
      query_blocks_of(args.shape, Tiles::kBlockRows), 1,
      {.threads = kHopperThreads, .shared_bytes = HopperForwardShared<Tiles>::kBytes, .seed = seed},
      [&](Lane& lane, std::int64_t block) { hopper_forward_block<Tiles>(lane, operands, block); });
}

// Blocks wait for each other, so several run at a time.
template <class Lane, class T, int kColumns>
void run_columns(const AttentionBackward& args, std::uint64_t seed) {
  using Tiles = HopperBackwardTiles<T, kColumns>;
  const HopperBackwardSizes sizes = backward_sizes<Tiles>(args.shape);
  std::vector<QueryNumbers> numbers(static_cast<std::size_t>(sizes.numbers));
  std::vector<float> dq_sums(static_cast<std::size_t>(sizes.dq_sums), std::numeric_limits<float>::quiet_NaN());
  std::vector<std::uint32_t> counters(static_cast<std::size_t>(sizes.counters));
  const BackwardOperands<T> plain = operands_for<T>(args, numbers.data());
  EmulatedBlock numbers_block({.threads = kAttentionThreads, .seed = seed});
  emulated::Threads threads;
  for (std::int64_t block = 0; block < numbers_blocks<T>(plain.geometry, sizes.numbers); ++block) {
    numbers_block.run(threads, [&](EmulatedLane& lane) {
      attention_numbers_block(lane, plain, static_cast<int>(sizes.numbers), block);
    });
  }
  const auto operands =
      hopper_operands<Tiles, HeadTensor>(args, {numbers.data(), dq_sums.data(), counters.data()}, as_it_is);
  EmulatedHopperBlock::run_grid<Lane>(
      key_blocks_of(args.shape, Tiles::kBlockRows), 3,
      {.threads = kHopperThreads, .shared_bytes = HopperBackwardShared<Tiles>::kBytes, .seed = seed},
      [&](Lane& lane, std::int64_t /*block*/) { hopper_backward_block<Tiles>(lane, operands); });
  for (std::int64_t pair = 0; pair < sizes.dq_sums / 2; ++pair) {
    dq_from_sums<Tiles, EmulatedLane>(plain.geometry, dq_sums.data(), plain.dq, pair);
  }
}

template <class Lane, class T, class Args>
void run_emulated(const Args& args, std::uint64_t seed) {
  if (args.shape.head_columns == 64) return run_columns<Lane, T, 64>(args, seed);
  run_columns<Lane, T, 128>(args, seed);
}

// The case of a kernel, run by its emulation; each run has another order of threads, copies and products.
template <class Lane, class Args>
KernelCase emulated_case(const AttentionShape& shape, core::DType dtype, std::uint64_t first_seed) {
  const Args args = shaped(Args{.shape = shape}, dtype);
  KernelCase kernel_case = case_of(args);
  kernel_case.run = [args, seed = first_seed](std::span<void* const> memory, const Context& /*where*/) mutable {
    const Args bound = with_memory(args, memory);
    ++seed;
    if (bound.q.dtype == core::DType::bf16) return run_emulated<Lane, core::BFloat16>(bound, seed);
    run_emulated<Lane, core::Float16>(bound, seed);
  };
  return kernel_case;
}

// Returns what is wrong with the result, or what the model refused.
template <class Lane, class Args>
std::string errors_of(const AttentionShape& shape, core::DType dtype, bool same_bits = false,
                      std::uint64_t first_seed = 0) {
  const KernelCase kernel_case = emulated_case<Lane, Args>(shape, dtype, first_seed);
  const auto device = core::make_cpu_device();
  ThreadPool pool(1);
  const Context context(pool);
  const CaseRunner runner{*device, context};
  try {
    const std::string errors = result_errors(kernel_case, 1, runner);
    return errors.empty() && same_bits ? determinism_errors(kernel_case, 3, {runner}) : errors;
  } catch (const core::Error& error) {
    return error.what();
  }
}

template <class Args>
void expect_right(core::DType dtype) {
  for (const AttentionShape& shape : kAttentionWgmmaShapes) {
    const bool same_bits = dtype == core::DType::bf16 && shape.batch == 1;
    const auto errors = errors_of<EmulatedHopperLane, Args>(shape, dtype, same_bits);
    EXPECT_EQ(errors, "") << case_of(shaped(Args{.shape = shape}, dtype)).name();
  }
}

TEST(AttentionHopper, ForwardBf16) {
  expect_right<AttentionForward>(core::DType::bf16);
}
TEST(AttentionHopper, ForwardF16) {
  expect_right<AttentionForward>(core::DType::f16);
}
TEST(AttentionHopper, BackwardBf16) {
  expect_right<AttentionBackward>(core::DType::bf16);
}
TEST(AttentionHopper, BackwardF16) {
  expect_right<AttentionBackward>(core::DType::f16);
}

// Blocks that begin together and add to the same tiles of dq would wait for each other at the first one.
TEST(AttentionHopper, WithoutAMaskBlocksThatBeginTogetherBelongToDifferentHeads) {
  using Tiles = HopperBackwardTiles<core::BFloat16, 64>;
  for (const bool causal : {false, true}) {
    const AttentionShape shape{
        .batch = 3, .heads = 8, .queries = 300, .keys = 700, .head_columns = 64, .causal = causal, .kv_heads = 2};
    const auto geometry = geometry_of<core::BFloat16>(shape, {});
    const std::int64_t heads = shape.batch * shape.key_heads();
    const std::int64_t blocks = key_blocks_of(shape, Tiles::kBlockRows);
    std::set<std::pair<std::int64_t, int>> first;  // heads of the blocks that begin together
    std::map<std::pair<std::int64_t, int>, std::vector<int>> tiles_of_head;
    for (std::int64_t ticket = 0; ticket < blocks; ++ticket) {
      const BlockWork keys = keys_of_ticket<Tiles>(ticket, geometry, heads);
      if (ticket < heads) first.emplace(keys.batch, keys.head);
      tiles_of_head[{keys.batch, keys.head}].push_back(keys.tile);
    }
    EXPECT_EQ(first.size(), causal ? 1 : static_cast<std::size_t>(heads));
    EXPECT_EQ(tiles_of_head.size(), static_cast<std::size_t>(heads));
    for (const auto& [head, tiles] : tiles_of_head) EXPECT_EQ(tiles, (std::vector<int>{5, 4, 3, 2, 1, 0}));
  }
}

// Lanes with mistakes that only attention can make; emulated_hopper.h has the others.

struct NobodyPassesTheTurn : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void arrive_at_meeting(int /*id*/, int /*threads*/) {}
};
// The depth of values lies along rows, as for keys.
struct ValuesAreNotTransposed : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  using EmulatedHopperLane::multiply;
  template <class T, bool kTransposedB, int kBlocks>
  void multiply(float (&d)[kBlocks][4], const std::uint32_t (&a)[4], std::uint64_t b, int add) {
    EmulatedHopperLane::multiply<T, !kTransposedB>(d, a, b, add);
  }
};

// A buffer is released as soon as it is full.
struct ConsumersReleaseEarly : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  using Shared = HopperForwardShared<HopperForwardTiles<core::BFloat16, 64>>;
  void wait(std::uint32_t barrier, std::uint32_t parity) {
    EmulatedHopperLane::wait(barrier, parity);
    const bool is_of_ring = barrier != Shared{window()}.queries_full();
    if (group() != 0 && lane() == 0 && is_of_ring) EmulatedHopperLane::arrive(barrier + 16);
  }
  void arrive(std::uint32_t barrier) {
    if (group() == 0) EmulatedHopperLane::arrive(barrier);
  }
};
struct StoresAreNotSwizzled : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  using EmulatedHopperLane::store_shared;
  void store_shared(std::uint32_t to, std::uint32_t word) {
    EmulatedHopperLane::store_shared(group() == 0 ? to : to ^ (to >> 3 & 0x70U), word);
  }
};
struct NobodyWaitsForTurns : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  void wait_for_turn(const std::uint32_t* /*counter*/, std::uint32_t /*turn*/) {}
};
struct TurnsAreNotPassed : EmulatedHopperLane {
  using EmulatedHopperLane::EmulatedHopperLane;
  static void pass_turn(std::uint32_t* /*counter*/) {}
};

// Shapes whose rings are filled more than twice.
constexpr AttentionShape long_shape(const AttentionForward& /*args*/) {
  return {1, 1, 128, 650, 64, false};
}
constexpr AttentionShape long_shape(const AttentionBackward& /*args*/) {
  return {1, 1, 330, 250, 64, false};
}

// The mistake must be detected in at least one of four orders.
template <class Lane, class Args>
void expect_seen(const std::string& what = "") {
  std::string errors;
  for (std::uint64_t seed = 0; seed < 4 && errors.empty(); ++seed) {
    errors = errors_of<Lane, Args>(long_shape(Args{}), core::DType::bf16, false, seed);
  }
  EXPECT_NE(errors, "") << "not seen: " << typeid(Lane).name();
  EXPECT_NE(errors.find(what), std::string::npos) << errors.substr(0, 200) << "\ninstead of: " << what;
}

template <class Args>
void expect_faults_seen() {
  expect_seen<ConsumersDoNotWait, Args>();
  expect_seen<ProducerDoesNotWait, Args>();
  expect_seen<ConsumersTakeTheWrongPhase, Args>();
  expect_seen<ProducerTakesTheWrongPhase, Args>("never comes");
  expect_seen<ExpectsHalfOfTheBytes, Args>("more bytes at a barrier than are expected");
  expect_seen<OneWarpReleasesNothing, Args>("never comes");
  expect_seen<BarriersAreNotPublished, Args>("before it was begun and published");
  expect_seen<DoesNotWaitForProducts, Args>("before their products were waited for");
  expect_seen<WaitsForOneGroupLess, Args>();
  expect_seen<ProductsAreNotBegun, Args>("without begin_products()");
  expect_seen<NobodyGivesRegisters, Args>("never comes");
  expect_seen<BoxesLieBesideThePattern, Args>("not aligned to the swizzle's pattern");
  expect_seen<WrongSwizzle, Args>("without the swizzle of 128 bytes");
  expect_seen<WrongStride, Args>();
  expect_seen<WrongRow, Args>();
  expect_seen<ValuesAreNotTransposed, Args>();
}

TEST(AttentionHopper, FaultsOfTheForwardAreSeen) {
  expect_faults_seen<AttentionForward>();
  expect_seen<ConsumersDoNotWait, AttentionForward>("reads a copy that its thread has not waited for");
  expect_seen<OneWarpReleasesTwice, AttentionForward>();
  expect_seen<NobodyPassesTheTurn, AttentionForward>("never comes");
  expect_seen<ConsumersReleaseEarly, AttentionForward>("a copy onto what");
}

TEST(AttentionHopper, FaultsOfTheBackwardAreSeen) {
  expect_faults_seen<AttentionBackward>();
  expect_seen<StoresAreNotPublished, AttentionBackward>("stores that are not published");
  expect_seen<StoresAreNotSwizzled, AttentionBackward>("dq[");
  expect_seen<NobodyWaitsForTurns, AttentionBackward>("dq[");
  expect_seen<TurnsAreNotPassed, AttentionBackward>("never comes");
  expect_seen<ConsumersDoNotMeet, AttentionBackward>();
}

}  // namespace
}  // namespace lockstep::kernels
