#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/device_cpu.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/gradient_check.h"
#include "kernels/gemm/gemm_cases.h"
#include "kernels/gemm/gemm_choice.h"
#include "kernels/gemm/gemm_reference.h"

namespace lockstep::kernels {
namespace {

TEST(Gemm, CasesHoldOnTheCpu) {
  for (const KernelCase& one : gemm_test_cases()) EXPECT_EQ(cpu_errors(one), "");
}

std::string errors_of(const KernelCase& one, std::string_view implementation, std::vector<ThreadPool*> pools) {
  const auto device = core::make_cpu_device();
  std::vector<Context> contexts;
  for (ThreadPool* pool : pools) {
    GemmChoice::of(*pool).force(implementation);
    contexts.emplace_back(*pool);
  }
  std::vector<CaseRunner> runners;
  for (const Context& context : contexts) runners.push_back({*device, context});
  std::string text;
  for (std::size_t i = 0; i < runners.size(); ++i) text += result_errors(one, 7 + i, runners[i], static_cast<int>(i));
  return text + determinism_errors(one, 7, runners);
}

// Each implementation by itself: measurement would hide those that lose.
TEST(Gemm, EveryImplementationIsRight) {
  ThreadPool pool1(1);
  ThreadPool pool2(2);
  ThreadPool pool3(3);
  for (const std::string& name : GemmChoice::of(pool1).names()) {
    for (KernelCase one : gemm_test_cases()) {
      if (name == "onednn" && one.dtype == core::DType::f16) continue;
      if (name == "amx" && one.dtype != core::DType::bf16) continue;
      one.deterministic = name != "onednn";  // ours sum in one order whatever the threads
      EXPECT_EQ(errors_of(one, name, {&pool1, &pool2, &pool3}), "") << name;
    }
  }
}

TEST(Gemm, GradientsAreThoseOfTheForward) {
  const GemmShape shape{4, 5, 3};
  const CaseFacts facts{.shape = "small", .dtype = core::DType::f64};
  const KernelCase forward = make_case(GemmForward{.shape = shape, .epilogue = Epilogue::bias}, facts);
  EXPECT_EQ(gradient_errors({.forward = forward,
                             .backward = make_case(GemmInputGradient{.shape = shape}, facts),
                             .outputs = {{"y", "dy"}},
                             .inputs = {{"x", "dx"}}}),
            "");
  EXPECT_EQ(gradient_errors({.forward = forward,
                             .backward = make_case(GemmWeightGradient{.shape = shape, .with_bias = true}, facts),
                             .outputs = {{"y", "dy"}},
                             .inputs = {{"w", "dw"}, {"bias", "dbias"}}}),
            "");
}

}  // namespace
}  // namespace lockstep::kernels
