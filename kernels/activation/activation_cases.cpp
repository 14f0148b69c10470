#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/activation/activation.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {
namespace {

void add(std::vector<KernelCase>& cases, std::int64_t count, core::DType dtype, const std::string& shape) {
  cases.push_back(case_of(shaped(GeluForward{.count = count}, dtype), shape));
  cases.push_back(case_of(shaped(GeluBackward{.count = count}, dtype), shape));
}

template <class Args>
KernelCase made_gelu(const Args& args, std::string shape) {
  if (shape.empty()) shape = fmt::format("N{}", args.count);
  return make_shaped_case(args, {.shape = std::move(shape), .dtype = args.x.dtype});
}

}  // namespace

KernelCase case_of(const GeluForward& args, std::string shape) {
  return made_gelu(args, std::move(shape));
}
KernelCase case_of(const GeluBackward& args, std::string shape) {
  return made_gelu(args, std::move(shape));
}

namespace {

void add(std::vector<KernelCase>& cases, std::int64_t rows, std::int64_t columns, core::DType dtype,
         const std::string& shape) {
  cases.push_back(case_of(shaped(SwigluForward{.rows = rows, .columns = columns}, dtype), shape));
  cases.push_back(case_of(shaped(SwigluBackward{.rows = rows, .columns = columns}, dtype), shape));
}

template <class Args>
KernelCase made_swiglu(const Args& args, std::string shape) {
  if (shape.empty()) shape = fmt::format("N{}_C{}", args.rows, args.columns);
  return make_shaped_case(args, {.shape = std::move(shape), .dtype = args.x.dtype});
}

}  // namespace

KernelCase case_of(const SwigluForward& args, std::string shape) {
  return made_swiglu(args, std::move(shape));
}
KernelCase case_of(const SwigluBackward& args, std::string shape) {
  return made_swiglu(args, std::move(shape));
}

std::vector<KernelCase> activation_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (std::int64_t count : test_counts(dtype)) add(cases, count, dtype, "");
  }
  for (core::DType dtype : kActivationDTypes) {
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 7}, {5, 64}, {2, 127}, {9, 344}}) {
      add(cases, rows, columns, dtype, "");
    }
    add(cases, 40, dtype == core::DType::f32 ? 16384 : 1024, dtype, "large");
  }
  return cases;
}

std::vector<KernelCase> activation_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      add(cases, tokens.rows() * 4 * tokens.channels, dtype, tokens.name(4 * tokens.channels));
    }
  }
  // The width of an MLP with three matrices that has about as many parameters as one with two at 4 times the channels:
  // 8/3 of the channels, rounded to a multiple of 256 (Touvron et al. 2023, arXiv:2302.13971, section 2.2).
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      const std::int64_t columns = (8 * tokens.channels / 3 + 255) / 256 * 256;
      add(cases, tokens.rows(), columns, dtype, tokens.name(columns));
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
