#include "kernels/cases.h"

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/gelu/gelu.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

void add(std::vector<KernelCase>& cases, std::int64_t count, core::DType dtype, const std::string& shape) {
  cases.push_back(case_of(shaped(GeluForward{.count = count}, dtype), shape));
  cases.push_back(case_of(shaped(GeluBackward{.count = count}, dtype), shape));
}

template <class Args>
KernelCase made(const Args& args, std::string shape) {
  if (shape.empty()) shape = fmt::format("N{}", args.count);
  return make_shaped_case(args, {.shape = std::move(shape), .dtype = args.x.dtype});
}

}  // namespace

KernelCase case_of(const GeluForward& args, std::string shape) {
  return made(args, std::move(shape));
}
KernelCase case_of(const GeluBackward& args, std::string shape) {
  return made(args, std::move(shape));
}

std::vector<KernelCase> gelu_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (std::int64_t count : test_counts(dtype)) add(cases, count, dtype, "");
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
