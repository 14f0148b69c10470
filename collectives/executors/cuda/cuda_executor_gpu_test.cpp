// Needs a GPU: the CUDA executor on ranks that share the first one. Numbers of ranks are parameters: ci/gpu_steps_*.txt
// runs few ranks before many, each in a process of its own, and 16 ranks alone, as they need every connection to the
// GPU.
#include <gtest/gtest.h>

#include "core/device.h"
#include "testing/collectives/cuda_cases.h"
#include "testing/core/fixtures.h"
#include "testing/core/thrown.h"

namespace lockstep::executors {
namespace {

constexpr std::int64_t kWithout = std::int64_t{1} << 40;  // no limit

TestRank gpu_rank(LocalWorld& world, const CudaOptions& options) {
  return test_rank_on(core::make_gpu_for_tests(world.rank()), world, options);
}

class CudaExecutorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = core::why_no_cuda()) GTEST_SKIP() << *why;
    multiprocessors_ = core::cuda_devices().front().num_multiprocessors;
  }
  // Kernels time out before the host does, as they can name the rank that they waited for.
  CudaOptions options(int num_ranks) const {
    return {.timeout = core::kGpuTestDeadline / 2, .most_blocks = std::max(1, multiprocessors_ / num_ranks)};
  }
  CudaOptions in_place_reads(int num_ranks) const {
    CudaOptions options = this->options(num_ranks);
    options.packets_below_bytes = options.stage_below_bytes = 0;
    return options;
  }
  CudaOptions staged(int num_ranks) const {
    CudaOptions options = in_place_reads(num_ranks);
    options.stage_below_bytes = kWithout;
    return options;
  }
  CudaOptions packets(int num_ranks) const {
    CudaOptions options = this->options(num_ranks);
    options.packets_below_bytes = kWithout;
    options.packets_only = true;
    return options;
  }
  static std::vector<Case> cases_of(std::int64_t count) { return all_algorithms(count, {}); }

  int multiprocessors_ = 0;
};

class CudaExecutorRanksTest : public CudaExecutorTest, public testing::WithParamInterface<int> {
 protected:
  int ranks() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, CudaExecutorRanksTest, testing::Values(1, 2, 3, 4, 8, 16),
                         testing::PrintToStringParamName());

TEST_P(CudaExecutorRanksTest, EveryAlgorithmReadsInPlace) {
  EXPECT_EQ(run_cases_on(ranks(), gpu_rank, cases_of(10007), in_place_reads(ranks())), "");
}

TEST_P(CudaExecutorRanksTest, EveryAlgorithmStaged) {
  EXPECT_EQ(run_cases_on(ranks(), gpu_rank, cases_of(10007), staged(ranks())), "");
}

TEST_P(CudaExecutorRanksTest, EveryAlgorithmByPackets) {
  EXPECT_EQ(run_cases_on(ranks(), gpu_rank, cases_of(1001), packets(ranks())), "");
}

TEST_F(CudaExecutorTest, AsItIsShippedSmallAndLarge) {
  for (std::int64_t count : {0, 1, 5, 1 << 20}) EXPECT_EQ(run_cases_on(4, gpu_rank, cases_of(count), options(4)), "");
}

TEST_F(CudaExecutorTest, MisalignedBuffers) {
  EXPECT_EQ(run_cases_on(4, gpu_rank, cases_of(10007), in_place_reads(4), 4), "");
  EXPECT_EQ(run_cases_on(4, gpu_rank, cases_of(1001), packets(4), 4), "");
}

TEST_F(CudaExecutorTest, AllTypesAndOperations) {
  EXPECT_EQ(run_cases_on(3, gpu_rank, all_types_and_operations(3333), in_place_reads(3)), "");
  EXPECT_EQ(run_cases_on(3, gpu_rank, all_types_and_operations(333), packets(3)), "");
}

struct Captured {
  std::unique_ptr<collectives::Collective> collective;
  std::unique_ptr<TestBuffers> buffers;
};

// Several collectives, by packets and by passes, in one graph that is launched several times with different inputs.
TEST_F(CudaExecutorTest, AGraphOfCollectivesIsReplayed) {
  const auto body = [](LocalWorld& world, TestRank& rank) {
    const int n = world.num_ranks();
    std::vector<Captured> all;
    for (const char* algorithm : {"two_shot", "ring", "two_shot"}) {
      for (std::int64_t count : {33, 1 << 18}) {
        const Operation operation{.kind = collectives::Kind::all_reduce, .count = count};
        auto buffers = std::make_unique<TestBuffers>(*rank.device, operation, world, 0);
        const auto choice = algorithms::parse_choice(operation.kind, algorithm);
        all.push_back({rank.ranks->prepare(algorithms::make_plan(choice, n, 0), operation), std::move(buffers)});
      }
    }
    const auto run_all = [&] {
      for (const Captured& captured : all)
        captured.collective->run(captured.buffers->input(), captured.buffers->output());
    };
    run_all();
    finish(rank);
    const auto graph = core::capture(*rank.stream, run_all);
    world.barrier();  // making a graph may wait for the device
    for (int round = 0; round < 4; ++round) {
      for (const Captured& captured : all) captured.buffers->fill(round);
      graph->launch(*rank.stream);
      finish(rank);
      for (const Captured& captured : all) captured.buffers->expect_right(round, "in a graph");
    }
    world.barrier();
  };
  for (int n : {2, 5}) EXPECT_EQ(run_ranks_on(n, gpu_rank, options(n), body), "");
}

// Must be the last test, as its ranks time out.
TEST_F(CudaExecutorTest, WhoStaysAwayIsNamed) {
  if (!core::make_gpu_for_tests()->computes()) GTEST_SKIP() << core::kNothingComputed;
  CudaOptions options = in_place_reads(3);
  options.timeout = std::chrono::milliseconds(300);
  const std::vector<std::string> said = said_of_rank_1_away(gpu_rank, options);
  for (std::size_t rank : {std::size_t{0}, std::size_t{2}}) EXPECT_TRUE(core::has(said[rank], "for rank 1 to enter"));
  const std::string late = said_by_who_comes_late(gpu_rank, options);
  EXPECT_TRUE(core::has(late, "for rank 1 to "));
}

}  // namespace
}  // namespace lockstep::executors
