// Checks that a backward's reference is the derivative of its forward's: directional derivatives by finite differences
// in f64. Kernels are checked against references, so this covers them too. Usage in x_test.cpp:
//
//   // f64 operands never run; with them, references round nothing.
//   const CaseFacts facts{.shape = "R3_C17", .dtype = core::DType::f64};
//   const GradientCheck check{
//       .forward = make_case(NormForward{.norm = Norm::layer, .rows = 3, .columns = 17}, facts),
//       .backward = make_case(NormBackward{.norm = Norm::layer, .rows = 3, .columns = 17}, facts),
//       .outputs = {{"y", "dy"}},
//       .inputs = {{"x", "dx"}, {"gamma", "dgamma"}, {"beta", "dbeta"}}};
//   EXPECT_EQ(gradient_errors(check), "");
//
// Operands of the backward with the name of one of the forward's (x, y, mean) get its values; other names are matched
// by `same`. Leave inputs that cannot be differentiated (token ids) out of `inputs`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

struct GradientCheck {
  struct Names {
    std::string forward;
    std::string backward;
  };
  KernelCase forward;
  KernelCase backward;
  std::vector<Names> outputs;    // outputs of the forward, and the gradients that the backward reads
  std::vector<Names> inputs;     // inputs of the forward, and their gradients, which the backward writes or adds to
  std::vector<Names> same = {};  // operands of the backward that hold a forward's operand with another name
  // Relative to the sum of the derivative's terms. The formula's own error is about step^4 and 1e-16 / step.
  double tolerance = 1e-8;
  double step = 1e-3;
};

// Returns each input whose gradient is wrong, with both derivatives; empty if none is. The seed draws operands and
// directions.
std::string gradient_errors(const GradientCheck& check, std::uint64_t seed = 1);

}  // namespace lockstep::kernels
