#include "kernels/copy/copy.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

TEST(CopyRows, CasesHoldOnTheCpu) {
  for (const KernelCase& kernel_case : copy_test_cases()) EXPECT_EQ(cpu_errors(kernel_case), "");
}

TEST(CopyRows, RefusesStridesThatAreTooShort) {
  EXPECT_THROW((CopyRows{.rows = 2, .columns = 8, .from_stride = 7}.check_shape()), core::Error);
  EXPECT_THROW((CopyRows{.rows = 2, .columns = 8, .to_stride = 7}.check_shape()), core::Error);
}

}  // namespace
}  // namespace lockstep::kernels
