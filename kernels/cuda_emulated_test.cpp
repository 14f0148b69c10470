// Runs the CUDA kernels' own sources on an emulated grid: checks indices, tails, alignment, barriers and arithmetic, as
// far as this is possible without a GPU. cuda_kernels_gpu_test runs them on a GPU. Attention has its own such test; for
// GEMM this runs the kernels that replace cuBLASLt.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

#include "core/device.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/cuda_geometry.h"
#include "kernels/base/cuda_instructions.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_timing.h"
#include "kernels/registry.h"
#include "testing/emulated_cuda/emulated_grid.h"
#include "testing/kernels/kernel_checks.h"
#include "testing/kernels/large_cases.h"
#include "testing/kernels/router_choices.h"

namespace lockstep::kernels {

extern thread_local uint4 dynamic_shared_memory[];

namespace {

constexpr std::int64_t kMostElems = 200000;  // limit per operand, because each element may need a thread

// Loops by which ceilings of bandwidth are measured, on small integers, whose sums f32 has exactly. On one block's part
// of a pass, a few blocks with a ragged end, and more passes of the grid than a thread has accesses under way.
TEST(EmulatedMemoryLoops, TouchEveryElementOnce) {
  const auto device = core::make_cpu_device();
  const auto stream = device->make_stream();
  CudaContext cuda(*device, *stream);
  for (const std::int64_t count :
       {std::int64_t{4}, std::int64_t{1024}, std::int64_t{3 * 1024 + 12}, std::int64_t{200'000}}) {
    std::vector<float> memory(static_cast<std::size_t>(3 * count) + 8);  // aligned for accesses of 16 bytes
    void* begin = memory.data();
    std::size_t room = memory.size() * sizeof(float);
    auto* const a =
        static_cast<float*>(std::align(16, static_cast<std::size_t>(3 * count) * sizeof(float), begin, room));
    float* const b = a + count;
    float* const to = b + count;
    for (std::int64_t i = 0; i < count; ++i) {
      a[i] = static_cast<float>(i % 13);
      b[i] = static_cast<float>(i % 7);
    }
    std::vector<float> sums(static_cast<std::size_t>(read_blocks(cuda, count)), -1);
    read_on_device(cuda, a, count, sums.data());
    EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0.0), std::accumulate(a, a + count, 0.0)) << count;
    triad_on_device(cuda, a, b, 3, to, count);
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(to[i], a[i] + 3 * b[i]) << i << " of " << count;
  }
  float odd[8] = {};
  EXPECT_THROW(read_on_device(cuda, odd, 3, odd), core::Error) << "no whole access";
}

void count_threads(std::atomic<int>* count) {
  ++*count;
}

// The device has 48 KiB per block for static and dynamic shared memory together, and more only on request.
TEST(EmulatedLaunch, GetsAllSharedMemoryThatTheStaticPartLeaves) {
  const auto device = core::make_cpu_device();
  const auto stream = device->make_stream();
  CudaContext cuda(*device, *stream);
  constexpr std::size_t kMost = emulated::kMostSharedBytes - emulated::kStaticSharedBytes;
  std::atomic<int> count = 0;
  for (const std::size_t shared_bytes : {std::size_t{0}, std::size_t{48} << 10, kMost, std::size_t{16}}) {
    launch(cuda, "count", {.blocks = 1, .threads = 32, .shared_bytes = shared_bytes}, count_threads, &count);
  }
  EXPECT_EQ(count, 4 * 32);
  try {
    launch(cuda, "count", {.blocks = 1, .threads = 32, .shared_bytes = kMost + 16}, count_threads, &count);
    ADD_FAILURE() << "more than a block can have";
  } catch (const core::Error& error) {
    EXPECT_STREQ(error.what(),
                 "count: 231440 bytes of dynamic shared memory per block; allowed on CUDA device 0: 231424, which is "
                 "232448 less the kernel's static shared memory");
  }
}

class EmulatedCuda : public testing::TestWithParam<KernelFamily> {
 public:
  // Runs in which threads and blocks are scheduled in another order must give the same bits.
  static void expect_good(const KernelCase& kernel_case) {
    const auto device = core::make_cpu_device();
    const auto stream = device->make_stream();
    CudaContext cuda(*device, *stream);
    const Context context(cuda);
    std::uint64_t order = 1;
    const CaseRunner runner{*device, context, [&order] { emulated::set_order(++order); }};
    EXPECT_EQ(result_errors(kernel_case, 1, runner), "");
    EXPECT_EQ(result_errors(kernel_case, 2, runner, 1), "") << "each operand one element off its alignment";
    EXPECT_EQ(determinism_errors(kernel_case, 3, {runner}), "");
  }
};

TEST_P(EmulatedCuda, CasesHold) {
  for (const KernelCase& kernel_case : GetParam().test_cases()) {
    if (kernel_case.operands.front().elems <= kMostElems) expect_good(kernel_case);
  }
}

TEST(EmulatedRouter, ChoicesAreExpertsForScoresThatAreNotNumbers) {
  const auto device = core::make_cpu_device();
  const auto stream = device->make_stream();
  CudaContext cuda(*device, *stream);
  for (const RouterShape& shape : {kPlainRouter, kLimitedRouter}) {
    EXPECT_EQ(choices_outside_of_experts(shape, Context(cuda)), 0);
  }
}

// Devices before compute capability 9.0 have no clusters: long rows take other code paths there.
TEST(EmulatedCudaWithoutClusters, CasesOfLongRowsHold) {
  const auto device = core::make_cpu_device();
  const auto stream = device->make_stream();
  CudaContext cuda(*device, *stream);
  const Context context(cuda);
  const CaseRunner runner{*device, context, [] {}};
  emulated::set_most_cluster_blocks(1);
  for (const KernelCase& kernel_case : large_cases()) {
    if (kernel_case.operands.front().elems < 2 * kPastTheStash) continue;
    EXPECT_EQ(result_errors(kernel_case, 1, runner), "");
  }
  emulated::set_most_cluster_blocks(8);
}

// Each block of a cluster stores a number and sums up the numbers of all blocks. Returns the number of wrong sums over
// some orders of the blocks; an error counts as one.
int wrong_sums_of_clusters(bool wait_before_reading, bool wait_before_ending) {
  constexpr unsigned kBlocks = 8;
  constexpr unsigned kSharers = 4;
  int wrong = 0;
  for (std::uint64_t order = 1; order <= 20; ++order) {
    emulated::set_order(order);
    std::array<unsigned, kBlocks> sums{};
    try {
      emulated::run_grid({.blocks = kBlocks, .threads = 32, .shared_bytes = 16, .cluster = kSharers}, [&] {
        auto* const mine = reinterpret_cast<unsigned*>(dynamic_shared_memory);
        if (threadIdx.x == 0) *mine = blockIdx.x;
        if (wait_before_reading) meet_cluster();
        if (threadIdx.x == 3) {
          for (unsigned rank = 0; rank < kSharers; ++rank) sums.at(blockIdx.x) += *shared_of_peer(mine, rank);
        }
        if (wait_before_ending) meet_cluster();
      });
    } catch (const core::Error&) {
      ++wrong;
      continue;
    }
    for (unsigned b = 0; b < kBlocks; ++b)
      wrong += sums.at(b) != (b < kSharers ? 0U + 1 + 2 + 3 : 4U + 5 + 6 + 7) ? 1 : 0;
  }
  return wrong;
}

TEST(EmulatedClusters, ReadEachOthersSharedMemoryAndMissingBarriersShow) {
  EXPECT_EQ(wrong_sums_of_clusters(true, true), 0);
  EXPECT_GT(wrong_sums_of_clusters(false, true), 10);
  EXPECT_GT(wrong_sums_of_clusters(true, false), 10);
}

// Copies numbers into shared memory and reads them while up to kUnderWay groups of copies are still in flight. Returns
// how many reads over some orders are wrong.
template <int kUnderWay>
int wrong_copies() {
  const std::array<int, 4> from{1, 2, 3, 4};
  int wrong = 0;
  for (std::uint64_t order = 1; order <= 20; ++order) {
    emulated::set_order(order);
    emulated::run_grid({.blocks = 1, .threads = 32, .shared_bytes = 32 * sizeof(int)}, [&] {
      int* const place = reinterpret_cast<int*>(dynamic_shared_memory) + threadIdx.x;
      copy_async<4>(place, &from.at(threadIdx.x % 4));
      end_copy_group();
      wait_for_copies<kUnderWay>();
      wrong += *place != from.at(threadIdx.x % 4) ? 1 : 0;
    });
  }
  return wrong;
}

TEST(EmulatedCopies, AreThereWhenWaitedForAndMissingWaitsShow) {
  EXPECT_EQ(wrong_copies<0>(), 0);
  EXPECT_GT(wrong_copies<1>(), 100);
}

// The emulated device runs a kernel at its launch, so nothing can open the gate; cuda_kernels_gpu_test checks that.
TEST(EmulatedGate, OpensItselfWhenNobodyDoes) {
  const auto device = core::make_cpu_device();
  const auto stream = device->make_stream();
  const CudaContext cuda(*device, *stream);
  StreamGate gate(cuda, std::chrono::milliseconds(1));
  EXPECT_FALSE(gate.lost_patience());
  for (int turn = 0; turn < 2; ++turn) {
    gate.close();
    EXPECT_TRUE(gate.lost_patience());
    gate.open();
  }
}

std::vector<KernelFamily> emulated_families() {
  std::vector<KernelFamily> families{{"large", large_cases, nullptr}};
  for (const KernelFamily& family : kKernelFamilies) {
    if (std::string_view(family.name) != "attention") families.push_back(family);
  }
  return families;
}

INSTANTIATE_TEST_SUITE_P(Families, EmulatedCuda, testing::ValuesIn(emulated_families()),
                         [](const auto& family) { return std::string(family.param.name); });

}  // namespace
}  // namespace lockstep::kernels
