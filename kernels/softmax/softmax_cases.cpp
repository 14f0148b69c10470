#include "kernels/registry.h"

#include <fmt/format.h>

#include <array>

#include "kernels/base/kernel_case.h"
#include "kernels/softmax/softmax.h"

namespace lockstep::kernels {
namespace {

struct MatrixShape {
  std::int64_t rows;
  std::int64_t columns;
  std::string name() const { return fmt::format("R{}_C{}", rows, columns); }
};

// Sets the backward's y to the softmax of the values drawn for it.
void derive_y(ReferenceData<double>& data, std::size_t columns) {
  const auto y = data["y"];
  const std::vector<double> x(y.begin(), y.end());
  for (std::size_t begin = 0; begin < y.size(); begin += columns) {
    softmax_row_reference<double>(std::span(x).subspan(begin, columns), y.subspan(begin, columns));
  }
}

void add(std::vector<KernelCase>& cases, const MatrixShape& shape, core::DType dtype) {
  CaseFacts facts{.shape = shape.name(), .dtype = dtype, .draws = {{"x", {.scale = 3}}, {"y", {.scale = 3}}}};
  facts.terms = {{"y", shape.columns}, {"dx", shape.columns}};
  cases.push_back(make_case(SoftmaxForward{.rows = shape.rows, .columns = shape.columns}, facts));
  facts.derive = [shape](ReferenceData<double>& data) { derive_y(data, static_cast<std::size_t>(shape.columns)); };
  cases.push_back(make_case(SoftmaxBackward{.rows = shape.rows, .columns = shape.columns}, facts));
}

constexpr std::array kTestRows{MatrixShape{1, 1},    MatrixShape{3, 1},   MatrixShape{5, 3},
                               MatrixShape{4, 17},   MatrixShape{2, 32},  MatrixShape{7, 127},
                               MatrixShape{9, 1031}, MatrixShape{70, 64}, MatrixShape{1, 50257}};
// Attention scores of the mini-trainer's small model (B = 8, 4 heads, T = 128), of GPT-2 (B = 4, 12 heads, T = 64), and
// of a batch that fits in no cache.
constexpr std::array kBenchRows{MatrixShape{4096, 128}, MatrixShape{3072, 64}, MatrixShape{8192, 1024}};

}  // namespace

std::vector<KernelCase> softmax_test_cases() {
  return cases_of(kActivationDTypes, kTestRows, add);
}

std::vector<KernelCase> softmax_bench_cases() {
  return cases_of(kBenchDTypes, kBenchRows, add);
}

}  // namespace lockstep::kernels
