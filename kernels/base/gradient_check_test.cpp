#include "kernels/base/gradient_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gelu/gelu.h"
#include "kernels/gelu/gelu_reference.h"

namespace lockstep::kernels {
namespace {

GradientCheck gelu_check() {
  const CaseFacts facts{.shape = "N17", .dtype = core::DType::f64};
  return {.forward = make_case(GeluForward{.count = 17}, facts),
          .backward = make_case(GeluBackward{.count = 17}, facts),
          .outputs = {{"y", "dy"}},
          .inputs = {{"x", "dx"}}};
}

TEST(GradientCheck, HoldsForADerivative) {
  EXPECT_EQ(gradient_errors(gelu_check()), "");
}

TEST(GradientCheck, FindsOneElementThatIsOff) {
  GradientCheck check = gelu_check();
  const auto right = check.backward.reference;
  check.backward.reference = [right](ReferenceData<double>& data) {
    right(data);
    data["dx"][3] *= 1.0001;
  };
  EXPECT_NE(gradient_errors(check).find("dx says"), std::string::npos);
}

TEST(GradientCheck, FindsNaN) {
  GradientCheck check = gelu_check();
  check.backward.reference = [](ReferenceData<double>& data) {
    for (double& value : data["dx"]) value = std::nan("");
  };
  EXPECT_NE(gradient_errors(check), "");
}

}  // namespace
}  // namespace lockstep::kernels
