// The kernels of the CUDA executor, their own source, on emulated grids whose blocks run at the same time, one for each
// rank: what they wait for, tell, move and combine, as far as that can be known without a GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "collectives/executors/cuda/cuda_ranks.h"
#include "collectives/executors/direct_cases.h"
#include "core/device_cpu.h"
#include "kernels/emulated_cuda/emulated_grid.h"

namespace lockstep::executors {
namespace {

using transports::World;

// A rank on an emulated device, whose memory all see.
struct EmulatedRank {
  EmulatedRank(World& world, const CudaOptions& options)
      : device(core::make_cpu_device()),
        stream(device->make_stream()),
        ranks(
            world, *device, *stream, [&world](std::byte* mine) { return transports::all_gather_value(world, mine); },
            options) {
    kernels::emulated::set_order(static_cast<std::uint64_t>(world.rank()) + 1);
    kernels::emulated::run_blocks_together();
  }
  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Stream> stream;
  CudaRanks ranks;
};

// Ranks whose kernels write to each other's memory go together, also after a failure.
class ExitDoor {
 public:
  explicit ExitDoor(int num_ranks) : missing_(num_ranks) {}
  void leave() {
    --missing_;
    while (missing_ > 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> missing_;
};

// What went wrong, or nothing.
std::string run_emulated(int num_ranks, const std::vector<Case>& cases, const CudaOptions& options) {
  LocalOptions local;
  local.num_ranks = num_ranks;
  local.memory_bytes_per_rank = std::size_t{256} << 20;
  LocalGroup group(local);
  ExitDoor door(num_ranks);
  try {
    group.run([&](LocalWorld& world) {
      EmulatedRank rank(world, options);
      const std::shared_ptr<void> at_the_end(nullptr, [&](void*) { door.leave(); });
      for (const Case& c : cases) {
        run_case(world, c, [&](const plan::Plan& plan, const Operation& operation, const DirectOptions&) {
          const auto collective = rank.ranks.prepare(plan, operation);
          try {
            expect_exact(world, plan, operation, *collective);
          } catch (const core::Error&) {
            rank.ranks.check();  // says more
            throw;
          }
          rank.ranks.check();
        });
      }
    });
  } catch (const core::Error& error) {
    return std::to_string(num_ranks) + " ranks: " + error.what();
  }
  return "";
}

constexpr std::int64_t kWithout = std::int64_t{1} << 40;  // limit

// Few threads, as each is a coroutine, and passes that are cut into many.
CudaOptions small_blocks(int most_blocks, std::int64_t stage_below_bytes) {
  return {.timeout = std::chrono::seconds(60),
          .most_blocks = most_blocks,
          .threads = 32,
          .stage_below_bytes = stage_below_bytes,
          .segment_bytes = 1024,
          .packets_below_bytes = 0};
}

CudaOptions packets(int most_blocks) {
  CudaOptions options = small_blocks(most_blocks, 0);
  options.packets_below_bytes = kWithout;
  return options;
}

TEST(CudaRanks, EveryAlgorithmGivesExactBitsWithPeersReadInPlace) {
  for (int ranks : {1, 2, 3, 4, 8}) EXPECT_EQ(run_emulated(ranks, all_algorithms(1000, {}), small_blocks(16, 0)), "");
}

TEST(CudaRanks, EveryAlgorithmGivesExactBitsStaged) {
  for (int ranks : {2, 3, 5}) {
    EXPECT_EQ(run_emulated(ranks, all_algorithms(1000, {}), small_blocks(16, kWithout)), "");
  }
}

TEST(CudaRanks, EveryAlgorithmGivesExactBitsByPackets) {
  for (int ranks : {2, 3, 8}) EXPECT_EQ(run_emulated(ranks, all_algorithms(500, {}), packets(ranks < 8 ? 16 : 4)), "");
  for (std::int64_t count : {0, 1, 3}) EXPECT_EQ(run_emulated(5, all_algorithms(count, {}), packets(16)), "");
}

TEST(CudaRanks, LanesOfManyBlocksAndLongPasses) {
  for (int ranks : {2, 3}) EXPECT_EQ(run_emulated(ranks, all_algorithms(20011, {}), small_blocks(32, 0)), "");
}

TEST(CudaRanks, CountsBelowTheRankCount) {
  for (std::int64_t count : {0, 1, 3}) {
    EXPECT_EQ(run_emulated(5, all_algorithms(count, {}), small_blocks(16, 0)), "");
  }
}

TEST(CudaRanks, AllTypesAndOperations) {
  std::vector<Case> cases;
  for (const algorithms::Algorithm& algorithm : algorithms::catalogue()) {
    if (algorithm.name != "ring" && algorithm.name != "two_shot") continue;
    for (core::DType dtype : core::all_dtypes()) {
      for (core::ReduceOp op : core::all_reduce_ops()) {
        if (op != core::ReduceOp::sum && !collectives::has_op(algorithm.kind)) continue;
        cases.push_back({.algorithm = &algorithm, .count = 333, .dtype = dtype, .op = op});
      }
    }
  }
  EXPECT_EQ(run_emulated(3, cases, small_blocks(8, 0)), "");
  EXPECT_EQ(run_emulated(3, cases, packets(8)), "");
}

TEST(CudaRanks, TooManyLanesAreRefused) {
  EXPECT_NE(run_emulated(4, all_algorithms(100, {}), small_blocks(1, 0)).find("so many thread blocks of a rank"),
            std::string::npos);
}

// Rank 1 stays away: the others' kernels end by themselves, and say for whom they waited.
TEST(CudaRanks, ARankThatStaysAwayIsNamed) {
  LocalGroup group({.num_ranks = 3});
  ExitDoor door(3);
  std::vector<std::string> said(3);
  group.run([&](LocalWorld& world) {
    CudaOptions options = small_blocks(4, 0);
    options.timeout = std::chrono::milliseconds(300);
    EmulatedRank rank(world, options);
    const std::shared_ptr<void> at_the_end(nullptr, [&](void*) { door.leave(); });
    const Operation operation{.kind = collectives::Kind::all_reduce, .count = 100};
    const algorithms::Choice ring = algorithms::parse_choice(operation.kind, "ring");
    const auto collective = rank.ranks.prepare(algorithms::make_plan(ring, 3, 0), operation);
    if (world.rank() == 1) return;
    std::vector<float> input(100);
    std::vector<float> output(100);
    collective->run(input.data(), output.data());
    try {
      rank.ranks.check();
    } catch (const core::Error& error) {
      said[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  for (std::size_t rank : {0, 2}) EXPECT_NE(said[rank].find("for rank 1 to enter"), std::string::npos) << said[rank];
}

}  // namespace
}  // namespace lockstep::executors
