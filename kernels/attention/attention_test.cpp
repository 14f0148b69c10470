#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include "kernels/attention/attention_cases.h"
#include "kernels/base/case_checks.h"

namespace lockstep::kernels {
namespace {

TEST(Attention, CasesHoldOnTheCpu) {
  for (const KernelCase& one : attention_test_cases()) EXPECT_EQ(cpu_errors(one), "");
}

}  // namespace
}  // namespace lockstep::kernels
