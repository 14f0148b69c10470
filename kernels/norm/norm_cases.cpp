#include "kernels/registry.h"

#include <fmt/format.h>

#include <array>

#include "kernels/base/kernel_case.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_reference.h"

namespace lockstep::kernels {
namespace {

struct MatrixShape {
  std::int64_t rows;
  std::int64_t columns;
};

// Sets the backward's mean and rstd to its x's.
void derive_moments(const NormBackward& args, ReferenceData<double>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  for (std::size_t r = 0; r < static_cast<std::size_t>(args.rows); ++r) {
    const std::span<const double> x = data["x"].subspan(r * columns, columns);
    const RowMoments<double> row = row_moments(args.norm, x, 1e-5F);
    if (args.norm == Norm::layer) data["mean"][r] = row.mean;
    data["rstd"][r] = row.rstd;
  }
}

void add(std::vector<KernelCase>& cases, const MatrixShape& matrix, const std::string& shape, core::DType dtype) {
  for (Norm norm : {Norm::layer, Norm::rms}) {
    for (bool with_residual : {false, true}) {
      const NormForward forward{norm, matrix.rows, matrix.columns, with_residual};
      const NormBackward backward{norm, matrix.rows, matrix.columns, with_residual};
      cases.push_back(case_of(shaped(forward, dtype), shape));
      cases.push_back(case_of(shaped(backward, dtype), shape));
    }
  }
}

CaseFacts facts(std::int64_t rows, std::int64_t columns, std::string shape, core::DType dtype) {
  if (shape.empty()) shape = fmt::format("R{}_C{}", rows, columns);
  return {
      .shape = std::move(shape),
      .dtype = dtype,
      .terms = {
          {"y", columns}, {"mean", columns}, {"rstd", columns}, {"dx", columns}, {"dgamma", rows}, {"dbeta", rows}}};
}

constexpr std::array kTestShapes{MatrixShape{1, 5},    MatrixShape{5, 3},    MatrixShape{4, 17},
                                 MatrixShape{3, 64},   MatrixShape{7, 127},  MatrixShape{70, 97},
                                 MatrixShape{9, 2500}, MatrixShape{261, 64}, MatrixShape{3, 9024}};

}  // namespace

KernelCase case_of(const NormForward& args, std::string shape) {
  return make_shaped_case(args, facts(args.rows, args.columns, std::move(shape), args.x.dtype));
}

KernelCase case_of(const NormBackward& args, std::string shape) {
  CaseFacts of_case = facts(args.rows, args.columns, std::move(shape), args.x.dtype);
  of_case.derive = [args](ReferenceData<double>& data) { derive_moments(args, data); };
  return make_shaped_case(args, std::move(of_case));
}

std::vector<KernelCase> norm_test_cases() {
  return cases_of(kActivationDTypes, kTestShapes, [](std::vector<KernelCase>& cases, const auto& matrix, auto dtype) {
    add(cases, matrix, "", dtype);
  });
}

std::vector<KernelCase> norm_bench_cases() {
  return cases_of(kBenchDTypes, kBenchTokens, [](std::vector<KernelCase>& cases, const Tokens& tokens, auto dtype) {
    add(cases, {tokens.rows(), tokens.channels}, tokens.name(), dtype);
  });
}

}  // namespace lockstep::kernels
