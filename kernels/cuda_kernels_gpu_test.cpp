// Needs a GPU: every test case of every family on CUDA.
#include <gtest/gtest.h>

#include "core/device_cuda.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/cuda_context.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

class CudaKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = core::why_no_cuda()) GTEST_SKIP() << *why;
    device = core::make_cuda_device(0, 0);
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

TEST_F(CudaKernelsTest, ResultsAreTheReferences) {
  for (const KernelCase& one : all_test_cases()) {
    EXPECT_EQ(result_errors(one, 1, runner()), "");
    EXPECT_EQ(result_errors(one, 2, runner(), 1), "") << "each operand one element off its alignment";
  }
}

TEST_F(CudaKernelsTest, RunsGiveTheSameBits) {
  for (const KernelCase& one : all_test_cases()) EXPECT_EQ(determinism_errors(one, 3, {runner(), runner()}), "");
}

TEST_F(CudaKernelsTest, TheWorkspaceGrowsAndStays) {
  void* const small = cuda->workspace(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small) % 256, 0U);
  EXPECT_EQ(cuda->workspace(1000), small);
  void* const large = cuda->workspace(std::size_t{64} << 20);
  EXPECT_NE(large, small);
  EXPECT_EQ(cuda->workspace(1), large);
}

}  // namespace
}  // namespace lockstep::kernels
