#include "kernels/gelu/gelu.h"

#include <gtest/gtest.h>

#include "kernels/base/case_checks.h"
#include "kernels/gelu/gelu_cases.h"

namespace lockstep::kernels {
namespace {

TEST(Gelu, CasesHoldOnTheCpu) {
  for (const KernelCase& one : gelu_test_cases()) EXPECT_EQ(cpu_errors(one), "");
}

}  // namespace
}  // namespace lockstep::kernels
