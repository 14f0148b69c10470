#include "kernels/registry.h"

#include <fmt/format.h>

#include "kernels/base/shapes.h"
#include "kernels/reduce/reduction.h"
#include "kernels/reduce/reduction_reference.h"

namespace lockstep::kernels {
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
