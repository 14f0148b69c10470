// Needs a GPU: runs every test case of every family on CUDA, and the kernels by wgmma. The family is a test parameter,
// so that ci/gpu_steps_*.txt runs each in its own process: an error that a kernel leaves fails everything after it in
// its process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/device.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/cuda_timing.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/registry.h"
#include "testing/core/fixtures.h"
#include "testing/kernels/attention_shapes.h"
#include "testing/kernels/kernel_checks.h"

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

// Attention by mma.sync, wherever that is not the default; class Wgmma has the other kernels.
class CudaKernelsTest : public CudaContextTest, public testing::WithParamInterface<KernelFamily> {
 protected:
  void SetUp() override {
    CudaContextTest::SetUp();
    if (!IsSkipped()) choose_attention(*cuda, "mma");
  }
};

INSTANTIATE_TEST_SUITE_P(Families, CudaKernelsTest, testing::ValuesIn(kKernelFamilies),
                         [](const auto& family) { return std::string(family.param.name); });

TEST_P(CudaKernelsTest, ResultsAreTheReferences) {
  for (const KernelCase& kernel_case : GetParam().test_cases()) {
    EXPECT_EQ(result_errors(kernel_case, 1, runner()), "");
    EXPECT_EQ(result_errors(kernel_case, 2, runner(), 1), "") << "each operand one element off its alignment";
  }
}

TEST_P(CudaKernelsTest, RunsGiveTheSameBits) {
  for (const KernelCase& kernel_case : GetParam().test_cases())
    EXPECT_EQ(determinism_errors(kernel_case, 3, {runner(), runner()}), "");
}

// Kernels that update an operand are left out: a replay would update it again.
TEST_P(CudaKernelsTest, AGraphGivesTheSameBits) {
  for (const KernelCase& kernel_case : GetParam().test_cases()) {
    const auto updates = [](const CaseOperand& operand) { return operand.access == Access::update; };
    if (!kernel_case.deterministic || std::any_of(kernel_case.operands.begin(), kernel_case.operands.end(), updates))
      continue;
    const ReferenceData<double> inputs = inputs_for(*device, kernel_case, 4);
    CaseMemory memory(*device, kernel_case);
    memory.fill(inputs);
    kernel_case.run(memory.pointers(), *context);
    stream->synchronize();
    const std::vector<std::byte> first = memory.bytes_of_outputs();
    const auto graph = core::capture(*stream, [&] { kernel_case.run(memory.pointers(), *context); });
    memory.fill(inputs);
    graph->launch(*stream);
    stream->synchronize();
    EXPECT_EQ(memory.bytes_of_outputs(), first) << kernel_case.name();
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
  if (!device->computes()) GTEST_SKIP() << core::kNothingComputed;
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
  if (!device->computes()) GTEST_SKIP() << core::kNothingComputed;
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
  if (!device->computes()) GTEST_SKIP() << core::kNothingComputed;
  StreamGate gate(*cuda, std::chrono::milliseconds(20));
  gate.close();
  stream->synchronize();
  EXPECT_TRUE(gate.lost_patience());
}

// Attention and experts' products by wgmma need a GPU of compute capability 9.0; attention_hopper_emulated_test and
// experts_hopper_emulated_test run them on a model of the hardware.
class Wgmma : public CudaContextTest, public testing::WithParamInterface<core::DType> {
 protected:
  void SetUp() override {
    CudaContextTest::SetUp();
    if (IsSkipped()) return;
    choose_attention(*cuda, "wgmma");
    choose_experts(*cuda, "wgmma");
  }
  void expect_right(KernelCase kernel_case) {
    ASSERT_EQ(kernel_case.implementation(*context), "wgmma") << kernel_case.name();
    kernel_case.deterministic = true;
    EXPECT_EQ(result_errors(kernel_case, 1, runner()), "");
    EXPECT_EQ(determinism_errors(kernel_case, 3, {runner(), runner()}), "");
  }
};

class AttentionWgmma : public Wgmma {
 protected:
  template <class Args>
  void expect_right(const AttentionShape& shape) {
    Wgmma::expect_right(case_of(shaped(Args{.shape = shape}, GetParam())));
  }
};

class ExpertsWgmma : public Wgmma {
 protected:
  // Every direction and finish.
  void expect_right(const GroupedShape& shape, const std::string& name) {
    for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu}) {
      const GroupedGemmForward forward{.shape = shape, .epilogue = epilogue};
      Wgmma::expect_right(case_of(shaped(forward, GetParam()), name));
    }
    for (const bool flag : {false, true}) {
      const GroupedGemmInputGradient input{.shape = shape, .through_gelu = flag};
      const GroupedGemmWeightGradient weight{.shape = shape, .with_bias = flag};
      Wgmma::expect_right(case_of(shaped(input, GetParam()), name));
      Wgmma::expect_right(case_of(shaped(weight, GetParam()), name));
    }
  }
};

const auto k16Bits = testing::Values(core::DType::bf16, core::DType::f16);
const auto name_of_dtype = [](const auto& info) { return std::string(core::short_name_of(info.param)); };
INSTANTIATE_TEST_SUITE_P(DTypes, AttentionWgmma, k16Bits, name_of_dtype);
INSTANTIATE_TEST_SUITE_P(DTypes, ExpertsWgmma, k16Bits, name_of_dtype);

TEST_P(AttentionWgmma, ForwardIsTheReferences) {
  for (const AttentionShape& shape : kAttentionWgmmaShapes) expect_right<AttentionForward>(shape);
}

// More blocks than run at a time.
TEST_P(AttentionWgmma, ForwardOfManyBlocksIsTheReferences) {
  expect_right<AttentionForward>({2, 16, 640, 640, 64});
  expect_right<AttentionForward>({1, 32, 640, 640, 128, true, 0, 0, 8});
}

TEST_P(AttentionWgmma, BackwardIsTheReferences) {
  for (const AttentionShape& shape : kAttentionWgmmaShapes) expect_right<AttentionBackward>(shape);
}

// Blocks wait for each other to add to dq.
TEST_P(AttentionWgmma, BackwardOfManyBlocksIsTheReferences) {
  expect_right<AttentionBackward>({2, 16, 640, 640, 64});
  expect_right<AttentionBackward>({1, 32, 640, 640, 128, true, 0, 0, 8});
  expect_right<AttentionBackward>({2, 16, 640, 640, 64, false});
}

// Operands that are not aligned are computed by mma.
TEST_P(AttentionWgmma, WhatItDoesNotTakeIsRightToo) {
  const KernelCase kernel_case = case_of(shaped(AttentionForward{.shape = {1, 2, 130, 130, 64}}, GetParam()));
  EXPECT_EQ(result_errors(kernel_case, 2, runner(), 1), "");
  const KernelCase narrow = case_of(shaped(AttentionForward{.shape = {1, 2, 130, 130, 32}}, GetParam()));
  EXPECT_EQ(narrow.implementation(*context), "mma");
  EXPECT_EQ(result_errors(narrow, 1, runner()), "");
}

// Groups that are empty, end within a tile, fill one, or need several.
TEST_P(ExpertsWgmma, ProductsAreTheReferences) {
  expect_right({{0, 130, 0, 70, 1}, 72, 136}, "ragged");
  expect_right({{64, 129}, 136, 264}, "tails");
}

// More groups than a launch takes, and more tiles than multiprocessors, which are then wide.
TEST_P(ExpertsWgmma, ManyTilesAreTheReferences) {
  expect_right({std::vector<std::int64_t>(70, 33), 64, 64}, "many_groups");
  const std::vector<std::int64_t> rows(16, 96);
  expect_right({rows, 8, 4104}, "wide_outputs");
  expect_right({rows, 4104, 8}, "wide_inputs");
}

// Operands that are not aligned, or whose rows are not whole pieces, are computed by cuBLASLt.
TEST_P(ExpertsWgmma, WhatItDoesNotTakeIsRightToo) {
  const GroupedShape shape{{5, 0, 33}, 72, 136};
  EXPECT_EQ(result_errors(case_of(shaped(GroupedGemmForward{.shape = shape}, GetParam()), "shifted"), 2, runner(), 1),
            "");
  const KernelCase odd = case_of(shaped(GroupedGemmForward{.shape = {{5, 0, 33}, 17, 9}}, GetParam()), "odd");
  EXPECT_EQ(odd.implementation(*context), "cublaslt");
  EXPECT_EQ(result_errors(odd, 1, runner()), "");
}

}  // namespace
}  // namespace lockstep::kernels
