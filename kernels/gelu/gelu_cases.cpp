#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/shapes.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gelu/gelu_reference.h"

namespace lockstep::kernels {
namespace {

void add(std::vector<KernelCase>& cases, std::int64_t count, core::DType dtype, const std::string& shape) {
  cases.push_back(make_case(GeluForward{.count = count}, {.shape = shape, .dtype = dtype}));
  cases.push_back(make_case(GeluBackward{.count = count}, {.shape = shape, .dtype = dtype}));
}

}  // namespace

std::vector<KernelCase> gelu_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (std::int64_t count : test_counts(dtype)) add(cases, count, dtype, fmt::format("N{}", count));
  }
  return cases;
}

std::vector<KernelCase> gelu_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      add(cases, tokens.rows() * 4 * tokens.channels, dtype, tokens.name(4 * tokens.channels));
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
