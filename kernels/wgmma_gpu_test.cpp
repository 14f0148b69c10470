// Needs a GPU of compute capability 9.0: compares attention and experts' products by wgmma with the references;
// attention_hopper_emulated_test and experts_hopper_emulated_test run them on a model of the hardware.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/fixtures_for_tests.h"
#include "kernels/attention/attention.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_context.h"
#include "kernels/cases.h"
#include "kernels/moe/grouped_gemm.h"

namespace lockstep::kernels {
namespace {

class Wgmma : public testing::TestWithParam<core::DType> {
 protected:
  void SetUp() override {
    if (const auto why = core::why_no_cuda()) GTEST_SKIP() << *why;
    device = core::make_gpu_for_tests();
    stream = device->make_stream();
    cuda = std::make_unique<CudaContext>(*device, *stream);
    context.emplace(*cuda);
    choose_attention(*cuda, "wgmma");
    choose_experts(*cuda, "wgmma");
  }
  CaseRunner runner() {
    return {*device, *context, [this] { stream->synchronize(); }};
  }
  void expect_right(KernelCase one) {
    ASSERT_EQ(one.implementation(*context), "wgmma") << one.name();
    one.deterministic = true;
    EXPECT_EQ(result_errors(one, 1, runner()), "");
    EXPECT_EQ(determinism_errors(one, 3, {runner(), runner()}), "");
  }

  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Stream> stream;
  std::unique_ptr<CudaContext> cuda;
  std::optional<Context> context;
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
const auto name_of_dtype = [](const auto& one) { return std::string(core::short_name_of(one.param)); };
INSTANTIATE_TEST_SUITE_P(DTypes, AttentionWgmma, k16Bits, name_of_dtype);
INSTANTIATE_TEST_SUITE_P(DTypes, ExpertsWgmma, k16Bits, name_of_dtype);

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
  const KernelCase one = case_of(shaped(AttentionForward{.shape = {1, 2, 130, 130, 64}}, GetParam()));
  EXPECT_EQ(result_errors(one, 2, runner(), 1), "");
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
