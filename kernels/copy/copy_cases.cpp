// Cases, and the reference: plain loops, for tests.
#include "kernels/registry.h"

#include <array>
#include <limits>

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/base/operands.h"
#include "kernels/copy/copy.h"

namespace lockstep::kernels {

// The elements between rows keep the value with which tests fill outputs: NaN.
template <class S>
void reference(const CopyRows& args, ReferenceData<S>& data) {
  const auto from = data["from"];
  const auto to = data["to"];
  for (S& value : to) value = S(std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t c = 0; c < args.columns; ++c) {
      to[static_cast<std::size_t>(r * args.to_row() + c)] = from[static_cast<std::size_t>(r * args.from_row() + c)];
    }
  }
}

namespace {

void add(std::vector<KernelCase>& cases, const CopyRows& args, core::DType dtype) {
  cases.push_back(case_of(shaped(args, dtype)));
}

// rows, columns, from_stride, to_stride
constexpr std::array kTestShapes{CopyRows{1, 1},
                                 CopyRows{5, 3, 7},
                                 CopyRows{17, 64, 192},
                                 CopyRows{33, 31, 0, 40},
                                 CopyRows{3, 1031, 1100, 1040},
                                 CopyRows{70, 128, 384, 256}};
// Queries out of a fused product's output, and one rank's heads out of all. A single row is a plain copy of a message:
// on the CPU it is the C library's memcpy, with which compression kernels are compared.
constexpr std::array kBenchShapes{CopyRows{1024, 256, 768},           CopyRows{8192, 768, 2304},
                                  CopyRows{8192, 192, 768, 0},        CopyRows{1, std::int64_t{1} << 16},
                                  CopyRows{1, std::int64_t{1} << 20}, CopyRows{1, std::int64_t{1} << 24}};

}  // namespace

KernelCase case_of(const CopyRows& args) {
  const std::string shape = fmt::format("R{}_C{}_F{}_T{}", args.rows, args.columns, args.from_row(), args.to_row());
  return make_shaped_case(args, {.shape = shape, .dtype = args.from.dtype});
}

std::vector<KernelCase> copy_test_cases() {
  return cases_of(kActivationDTypes, kTestShapes, add);
}

std::vector<KernelCase> copy_bench_cases() {
  return cases_of(kBenchDTypes, kBenchShapes, add);
}

}  // namespace lockstep::kernels
