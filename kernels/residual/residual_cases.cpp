#include "kernels/residual/residual_cases.h"

#include <fmt/format.h>

#include "kernels/base/shapes.h"
#include "kernels/residual/residual.h"
#include "kernels/residual/residual_reference.h"

namespace lockstep::kernels {

std::vector<KernelCase> residual_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (std::int64_t count : test_counts(dtype)) {
      cases.push_back(make_case(ResidualAdd{.count = count}, {.shape = fmt::format("N{}", count), .dtype = dtype}));
    }
  }
  return cases;
}

std::vector<KernelCase> residual_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      const ResidualAdd add{.count = tokens.rows() * tokens.channels};
      cases.push_back(make_case(add, {.shape = tokens.name(), .dtype = dtype}));
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
