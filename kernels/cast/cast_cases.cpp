// Cases, and the reference: a plain loop, for tests. It does not round to y's dtype: cast_test.cpp compares rounding
// bit for bit with core/dtype.h.
#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/base/operands.h"
#include "kernels/cast/cast.h"

namespace lockstep::kernels {

template <class S>
void reference(const Cast& args, ReferenceData<S>& data) {
  const auto x = data["x"];
  const auto y = data["y"];
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * S(args.scale);
}

namespace {

using core::DType;

constexpr std::array kFloatDTypes{DType::f32, DType::bf16, DType::f16, DType::f8e4m3, DType::f8e5m2};

// Draws numbers in [1, 2): normal in every dtype, because the tolerance is relative.
KernelCase case_of(const Cast& args, const std::string& length) {
  const std::string shape = fmt::format("to_{}_{}", core::short_name_of(args.to), length);
  return make_case(args,
                   {.shape = shape, .dtype = args.from, .draws = {{"x", {.kind = Draw::Kind::positive, .scale = 2}}}});
}

}  // namespace

std::vector<KernelCase> cast_test_cases() {
  std::vector<KernelCase> cases;
  for (DType from : kFloatDTypes) {
    for (DType to : kFloatDTypes) {
      for (std::int64_t count : {1, 3, 17, 127, 1031, 16384}) {
        cases.push_back(case_of({.count = count, .from = from, .to = to, .scale = 0.75F}, fmt::format("N{}", count)));
      }
    }
  }
  cases.push_back(case_of({.count = 1000003, .from = DType::f32, .to = DType::bf16}, "N1000003"));
  return cases;
}

std::vector<KernelCase> cast_bench_cases() {
  struct Pair {
    DType from;
    DType to;
  };
  std::vector<KernelCase> cases;
  for (const auto& [from, to] :
       {Pair{DType::f32, DType::bf16}, Pair{DType::bf16, DType::f32}, Pair{DType::f32, DType::f16},
        Pair{DType::f16, DType::f32}, Pair{DType::f32, DType::f8e4m3}, Pair{DType::f8e4m3, DType::f32},
        Pair{DType::f32, DType::f8e5m2}, Pair{DType::f8e5m2, DType::f32}, Pair{DType::bf16, DType::f8e4m3},
        Pair{DType::f8e4m3, DType::bf16}}) {
    cases.push_back(case_of({.count = std::int64_t{1} << 24, .from = from, .to = to}, "N16M"));
  }
  return cases;
}

}  // namespace lockstep::kernels
