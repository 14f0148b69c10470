// The CUDA kernels' own sources on an emulated grid: indices, tails, alignment, barriers and arithmetic, as far as they
// can be known without a GPU. cuda_kernels_gpu_test runs them on one. Attention has a test like this of its own; GEMM
// is cuBLASLt's.
#include <gtest/gtest.h>

#include "core/device_cpu.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/cuda_context.h"
#include "kernels/bucket/bucket_cases.h"
#include "kernels/cast/cast_cases.h"
#include "kernels/cross_entropy/cross_entropy_cases.h"
#include "kernels/embedding/embedding_cases.h"
#include "kernels/emulated_cuda/emulated_grid.h"
#include "kernels/gelu/gelu_cases.h"
#include "kernels/optimizer/optimizer_cases.h"
#include "kernels/quantize/quantize_cases.h"
#include "kernels/reduce/reduction_cases.h"
#include "kernels/residual/residual_cases.h"
#include "kernels/softmax/softmax_cases.h"

namespace lockstep::kernels {
namespace {

struct Family {
  const char* name;
  std::vector<KernelCase> (*cases)();
};

class EmulatedCuda : public testing::TestWithParam<Family> {
 protected:
  // Runs whose threads and blocks take turns in another order give the same bits.
  static void expect_good(const KernelCase& one) {
    const auto device = core::make_cpu_device();
    const auto stream = device->make_stream();
    CudaContext cuda(*device, *stream);
    const Context context(cuda);
    std::uint64_t order = 1;
    const CaseRunner runner{*device, context, [&order] { emulated::set_order(++order); }};
    EXPECT_EQ(result_errors(one, 1, runner), "");
    EXPECT_EQ(result_errors(one, 2, runner, 1), "") << "each operand one element off its alignment";
    EXPECT_EQ(determinism_errors(one, 3, {runner}), "");
  }
};

TEST_P(EmulatedCuda, CasesHold) {
  for (const KernelCase& one : GetParam().cases()) expect_good(one);
}

INSTANTIATE_TEST_SUITE_P(Families, EmulatedCuda,
                         testing::Values(Family{"gelu", gelu_test_cases}, Family{"softmax", softmax_test_cases},
                                         Family{"residual", residual_test_cases},
                                         Family{"cross_entropy", cross_entropy_test_cases},
                                         Family{"embedding", embedding_test_cases},
                                         Family{"optimizer", optimizer_test_cases}, Family{"cast", cast_test_cases},
                                         Family{"quantize", quantize_test_cases}, Family{"bucket", bucket_test_cases},
                                         Family{"reduction", reduction_test_cases}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lockstep::kernels
