#include "kernels/cases.h"

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/registry.h"
#include "kernels/swiglu/swiglu.h"

namespace lockstep::kernels {
namespace {

void add(std::vector<KernelCase>& cases, std::int64_t rows, std::int64_t columns, core::DType dtype,
         const std::string& shape) {
  cases.push_back(case_of(shaped(SwigluForward{.rows = rows, .columns = columns}, dtype), shape));
  cases.push_back(case_of(shaped(SwigluBackward{.rows = rows, .columns = columns}, dtype), shape));
}

template <class Args>
KernelCase made(const Args& args, std::string shape) {
  if (shape.empty()) shape = fmt::format("N{}_C{}", args.rows, args.columns);
  return make_shaped_case(args, {.shape = std::move(shape), .dtype = args.x.dtype});
}

}  // namespace

KernelCase case_of(const SwigluForward& args, std::string shape) {
  return made(args, std::move(shape));
}
KernelCase case_of(const SwigluBackward& args, std::string shape) {
  return made(args, std::move(shape));
}

std::vector<KernelCase> swiglu_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 7}, {5, 64}, {2, 127}, {9, 344}}) {
      add(cases, rows, columns, dtype, "");
    }
    add(cases, 40, dtype == core::DType::f32 ? 16384 : 1024, dtype, "large");
  }
  return cases;
}

// The width of an MLP with three matrices that has about as many parameters as one with two at 4 times the channels:
// 8/3 of the channels, rounded to a multiple of 256 (Touvron et al. 2023, arXiv:2302.13971, section 2.2).
std::vector<KernelCase> swiglu_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      const std::int64_t columns = (8 * tokens.channels / 3 + 255) / 256 * 256;
      add(cases, tokens.rows(), columns, dtype, tokens.name(columns));
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
