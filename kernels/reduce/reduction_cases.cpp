// Cases, and the reference: plain loops, for tests. reduce_test.cpp compares rounding and wrapping bit by bit.
#include "kernels/registry.h"

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/base/operands.h"
#include "kernels/reduce/reduction.h"

namespace lockstep::kernels {

template <class S>
S combined_reference(core::ReduceOp op, S a, S b) {
  switch (op) {
    case core::ReduceOp::sum:
    case core::ReduceOp::avg:
      return a + b;
    case core::ReduceOp::prod:
      return a * b;
    case core::ReduceOp::max:
      return a < b ? b : a;
    case core::ReduceOp::min:
      return b < a ? b : a;
  }
  return a;
}

template <class S>
void reference(const Reduction& args, ReferenceData<S>& data) {
  const bool floats = core::is_floating(args.dtype);
  const auto destination = data["destination"];
  std::vector<std::span<S>> sources;
  for (std::int64_t k = 0; k < args.num_sources; ++k) sources.push_back(data["source" + std::to_string(k)]);
  for (std::size_t i = 0; i < destination.size(); ++i) {
    S value = sources[0][i];
    for (std::size_t k = 1; k < sources.size(); ++k) {
      const S next = sources[k][i];
      value = floats ? combined_reference(args.op, value, next)
                     : S(combined_reference(args.op, value_of(value), value_of(next)));
    }
    const auto divisor = static_cast<double>(args.average_over);
    if (args.average_over > 0) value = floats ? value / S(divisor) : S(std::trunc(value_of(value) / divisor));
    destination[i] = value;
  }
}

namespace {

using core::DType;
using core::ReduceOp;

// Results stay in every dtype's range: floats in normal numbers, because the tolerance is relative, with up to 8
// factors below 2; integers with up to 8 terms below 12 or 3 factors below 5.
Draw draw_of(const Reduction& args) {
  const bool product = args.op == ReduceOp::prod;
  if (core::is_floating(args.dtype)) return {.kind = Draw::Kind::positive, .scale = 2};
  return {.kind = Draw::Kind::index, .below = product ? 5 : 12};
}

KernelCase case_of(const Reduction& args, const std::string& length) {
  CaseFacts facts{.shape = fmt::format("{}_k{}_{}", core::name_of(args.op), args.num_sources, length),
                  .dtype = args.dtype,
                  .terms = {{"destination", args.num_sources}}};
  for (std::int64_t k = 0; k < args.num_sources; ++k) facts.draws[fmt::format("source{}", k)] = draw_of(args);
  return make_case(args, std::move(facts));
}

std::string name_of_bytes(std::int64_t bytes) {
  return bytes < 1 << 20 ? fmt::format("{}KiB", bytes >> 10) : fmt::format("{}MiB", bytes >> 20);
}

}  // namespace

std::vector<KernelCase> reduction_test_cases() {
  std::vector<KernelCase> cases;
  cases.push_back(case_of({1000003, 3, DType::f32, ReduceOp::sum}, "N1000003"));
  for (DType dtype : core::all_dtypes()) {
    for (ReduceOp op : core::all_reduce_ops()) {
      for (std::int64_t count : {1, 3, 17, 127, 4099}) {
        for (std::int64_t sources : {1, 2, 3}) {
          const std::int64_t average_over = op == ReduceOp::avg ? sources : 0;
          cases.push_back(case_of({count, sources, dtype, op, average_over}, fmt::format("N{}", count)));
        }
      }
    }
    cases.push_back(case_of({100003, 8, dtype, ReduceOp::avg, 8}, "N100003"));
  }
  return cases;
}

std::vector<KernelCase> reduction_bench_cases() {
  std::vector<KernelCase> cases;
  for (DType dtype : {DType::f32, DType::bf16, DType::f8e4m3}) {
    for (std::int64_t bytes : {std::int64_t{64} << 10, std::int64_t{16} << 20, std::int64_t{64} << 20}) {
      const std::int64_t count = bytes / static_cast<std::int64_t>(core::size_of(dtype));
      for (std::int64_t sources : {2, 4, 8}) {
        cases.push_back(case_of({count, sources, dtype, ReduceOp::sum}, name_of_bytes(bytes)));
      }
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
