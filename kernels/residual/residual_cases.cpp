#include "kernels/cases.h"

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/registry.h"
#include "kernels/residual/residual.h"

namespace lockstep::kernels {

KernelCase case_of(const ResidualAdd& args, std::string shape) {
  if (shape.empty()) shape = fmt::format("N{}", args.count);
  return make_shaped_case(args, {.shape = std::move(shape), .dtype = args.a.dtype});
}

std::vector<KernelCase> residual_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (std::int64_t count : test_counts(dtype)) {
      cases.push_back(case_of(shaped(ResidualAdd{.count = count}, dtype)));
    }
  }
  return cases;
}

std::vector<KernelCase> residual_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      const ResidualAdd add{.count = tokens.rows() * tokens.channels};
      cases.push_back(case_of(shaped(add, dtype), tokens.name()));
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
