// Needs a GPU: runs every test case of every family on CUDA. The family is a test parameter, so that ci/gpu_steps_*.txt
// runs each in its own process: an error that a kernel leaves behind fails everything after it in its process.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/device.h"
#include "core/device_memory.h"
#include "core/fixtures_for_tests.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/memory_loops.h"
#include "kernels/base/stream_gate.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

class CudaContextTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = core::why_no_cuda()) GTEST_SKIP() << *why;
    device = core::make_gpu_for_tests();
    stream = device->make_stream();
    cuda = std::make_unique<CudaContext>(*device, *stream);
    context.emplace(*cuda);
  }
  CaseRunner runner() {
    return {*device, *context, [this] { stream->synchronize(); }};
  }

  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Stream> stream;
  std::unique_ptr<CudaContext> cuda;
  std::optional<Context> context;
};

class CudaKernelsTest : public CudaContextTest, public testing::WithParamInterface<KernelFamily> {};

INSTANTIATE_TEST_SUITE_P(Families, CudaKernelsTest, testing::ValuesIn(kKernelFamilies),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(CudaKernelsTest, ResultsAreTheReferences) {
  for (const KernelCase& one : GetParam().test_cases()) {
    EXPECT_EQ(result_errors(one, 1, runner()), "");
    EXPECT_EQ(result_errors(one, 2, runner(), 1), "") << "each operand one element off its alignment";
  }
}

TEST_P(CudaKernelsTest, RunsGiveTheSameBits) {
  for (const KernelCase& one : GetParam().test_cases()) EXPECT_EQ(determinism_errors(one, 3, {runner(), runner()}), "");
}

// Kernels that update an operand are left out: a replay would update it again.
TEST_P(CudaKernelsTest, AGraphGivesTheSameBits) {
  for (const KernelCase& one : GetParam().test_cases()) {
    const auto updates = [](const CaseOperand& operand) { return operand.access == Access::update; };
    if (!one.deterministic || std::any_of(one.operands.begin(), one.operands.end(), updates)) continue;
    const ReferenceData<double> inputs = draw_inputs(one, 4);
    CaseMemory memory(*device, one);
    memory.fill(inputs);
    one.run(memory.pointers(), *context);
    stream->synchronize();
    const std::vector<std::byte> first = memory.bytes_of_outputs();
    const auto graph = core::capture(*stream, [&] { one.run(memory.pointers(), *context); });
    memory.fill(inputs);
    graph->launch(*stream);
    stream->synchronize();
    EXPECT_EQ(memory.bytes_of_outputs(), first) << one.name();
  }
}

TEST_F(CudaContextTest, TheWorkspaceGrowsAndStays) {
  void* const small = cuda->workspace(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small) % 256, 0U);
  EXPECT_EQ(cuda->workspace(1000), small);
  void* const large = cuda->workspace(std::size_t{64} << 20);
  EXPECT_NE(large, small);
  EXPECT_EQ(cuda->workspace(1), large);
}

TEST_F(CudaContextTest, WhatIsBehindAGateBeginsWhenItIsOpened) {
  StreamGate gate(*cuda);
  for (int turn = 0; turn < 3; ++turn) {
    gate.close();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(stream->done());
    gate.open();
    stream->synchronize();
    EXPECT_FALSE(gate.lost_patience());
  }
}

TEST_F(CudaContextTest, MemoryLoopsTouchEveryElementOnce) {
  constexpr std::int64_t kCount = 1'000'000;
  const std::vector<float> ones(kCount, 1);
  const std::vector<float> twos(kCount, 2);
  constexpr std::size_t kBytes = kCount * sizeof(float);
  core::DeviceBlock memory(*device, 3 * kBytes);
  auto* const a = reinterpret_cast<float*>(memory.data());
  float* const b = a + kCount;
  float* const to = b + kCount;
  device->copy_to_device(a, ones.data(), kBytes);
  device->copy_to_device(b, twos.data(), kBytes);
  triad_on_device(*cuda, a, b, 3, to, kCount);
  stream->synchronize();
  std::vector<float> found(kCount);
  device->copy_to_host(found.data(), to, kBytes);
  EXPECT_EQ(found, std::vector<float>(kCount, 7));
  read_on_device(*cuda, to, kCount, a);
  stream->synchronize();
  std::vector<float> sums(static_cast<std::size_t>(read_blocks(*cuda, kCount)));
  device->copy_to_host(sums.data(), a, sums.size() * sizeof(float));
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0.0), 7.0 * kCount);
}

TEST_F(CudaContextTest, AGateThatNobodyOpensOpensItself) {
  StreamGate gate(*cuda, std::chrono::milliseconds(20));
  gate.close();
  stream->synchronize();
  EXPECT_TRUE(gate.lost_patience());
}

}  // namespace
}  // namespace lockstep::kernels
