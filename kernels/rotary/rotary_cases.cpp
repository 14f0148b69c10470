#include "kernels/registry.h"

#include <fmt/format.h>

#include <array>

#include "kernels/base/kernel_case.h"
#include "kernels/rotary/rotary.h"

namespace lockstep::kernels {
namespace {

std::string name_of(const Rotary& args) {
  std::string name = fmt::format("N{}_T{}_H{}_D{}", args.rows, args.length, args.heads, args.head_columns);
  if (args.pairs == RotaryPairs::neighbours) name += "_neighbours";
  if (args.first_position != 0) name += fmt::format("_from{}", args.first_position);
  if (args.row_stride() != args.row()) name += fmt::format("_S{}", args.stride);
  return name;
}

void add(std::vector<KernelCase>& cases, Rotary args, core::DType dtype) {
  for (const bool backward : {false, true}) {
    args.backward = backward;
    cases.push_back(case_of(shaped(args, dtype)));
  }
}

}  // namespace

KernelCase case_of(const Rotary& args) {
  return make_shaped_case(args, {.shape = name_of(args), .dtype = args.x.dtype, .terms = {{"y", 2}}});
}

std::vector<KernelCase> rotary_test_cases() {
  constexpr std::array kShapes{
      Rotary{.rows = 1, .length = 1, .heads = 1, .head_columns = 2, .first_position = 1},
      Rotary{.rows = 34, .length = 17, .heads = 3, .head_columns = 6},
      Rotary{.rows = 12, .length = 5, .heads = 3, .head_columns = 64, .stride = 320},
      Rotary{.rows = 7, .length = 7, .heads = 2, .head_columns = 128, .first_position = 131065, .theta = 500000},
      Rotary{.rows = 9,
             .length = 9,
             .heads = 2,
             .head_columns = 128,
             .first_position = 131000,
             .theta = 500000,
             .scaling = {.factor = 8}},
      Rotary{.rows = 20, .length = 20, .heads = 5, .head_columns = 38, .stride = 191, .first_position = 3},
  };
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (Rotary shape : kShapes) {
      for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
        shape.pairs = pairs;
        add(cases, shape, dtype);
      }
    }
  }
  return cases;
}

// Queries and keys inside of a QKV activation: as many keys as queries, and a quarter as many.
std::vector<KernelCase> rotary_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      const std::int64_t heads = tokens.channels / 64;
      add(cases,
          {.rows = tokens.rows(),
           .length = tokens.length,
           .heads = 2 * heads,
           .head_columns = 64,
           .stride = 192 * heads},
          dtype);
    }
    add(cases, {.rows = 2048, .length = 2048, .heads = 40, .head_columns = 128, .stride = 6144, .theta = 500000},
        dtype);
  }
  return cases;
}

}  // namespace lockstep::kernels
