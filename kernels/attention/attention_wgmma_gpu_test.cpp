// Needs a GPU of compute capability 9.0: compares attention by wgmma with the references;
// attention_hopper_emulated_test runs it on a model of the hardware.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "core/device.h"
#include "core/fixtures_for_tests.h"
#include "kernels/attention/attention.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"
#include "kernels/cases.h"

namespace lockstep::kernels {
namespace {

class AttentionWgmma : public testing::TestWithParam<core::DType> {
 protected:
  void SetUp() override {
    if (const auto why = core::why_no_cuda()) GTEST_SKIP() << *why;
    device = core::make_gpu_for_tests();
    stream = device->make_stream();
    cuda = std::make_unique<CudaContext>(*device, *stream);
    context.emplace(*cuda);
    choose_attention(*cuda, "wgmma");
  }
  template <class Args>
  void expect_right(const AttentionShape& shape) {
    const KernelCase one = case_of(shaped(Args{.shape = shape}, GetParam()));
    ASSERT_EQ(one.implementation(*context), "wgmma") << one.name();
    const CaseRunner runner{*device, *context, [this] { stream->synchronize(); }};
    EXPECT_EQ(result_errors(one, 1, runner), "");
    EXPECT_EQ(determinism_errors(one, 3, {runner, runner}), "");
  }

  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Stream> stream;
  std::unique_ptr<CudaContext> cuda;
  std::optional<Context> context;
};

INSTANTIATE_TEST_SUITE_P(DTypes, AttentionWgmma, testing::Values(core::DType::bf16, core::DType::f16),
                         [](const auto& one) { return std::string(core::short_name_of(one.param)); });

TEST_P(AttentionWgmma, ForwardIsTheReferences) {
  for (const AttentionShape& shape : attention_wgmma_test_shapes()) expect_right<AttentionForward>(shape);
}

// More blocks than run at a time.
TEST_P(AttentionWgmma, ForwardOfManyBlocksIsTheReferences) {
  expect_right<AttentionForward>({2, 16, 640, 640, 64});
  expect_right<AttentionForward>({1, 32, 640, 640, 128, true, 0, 0, 8});
}

TEST_P(AttentionWgmma, BackwardIsTheReferences) {
  for (const AttentionShape& shape : attention_wgmma_test_shapes()) expect_right<AttentionBackward>(shape);
}

// Blocks wait for each other to add to dq.
TEST_P(AttentionWgmma, BackwardOfManyBlocksIsTheReferences) {
  expect_right<AttentionBackward>({2, 16, 640, 640, 64});
  expect_right<AttentionBackward>({1, 32, 640, 640, 128, true, 0, 0, 8});
  expect_right<AttentionBackward>({2, 16, 640, 640, 64, false});
}

// Operands that are not aligned are computed by mma.
TEST_P(AttentionWgmma, WhatItDoesNotTakeIsRightToo) {
  const CaseRunner runner{*device, *context, [this] { stream->synchronize(); }};
  const KernelCase one = case_of(shaped(AttentionForward{.shape = {1, 2, 130, 130, 64}}, GetParam()));
  EXPECT_EQ(result_errors(one, 2, runner, 1), "");
  const KernelCase narrow = case_of(shaped(AttentionForward{.shape = {1, 2, 130, 130, 32}}, GetParam()));
  EXPECT_EQ(narrow.implementation(*context), "mma");
  EXPECT_EQ(result_errors(narrow, 1, runner), "");
}

}  // namespace
}  // namespace lockstep::kernels
