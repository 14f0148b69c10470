#include "kernels/attention_merge/attention_merge.h"
#include "kernels/cases.h"

#include <fmt/format.h>

#include <array>

#include "kernels/attention_merge/attention_merge_reference.h"
#include "kernels/base/shapes.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

std::string name_of(const AttentionMerge& args) {
  std::string name = fmt::format("B{}_H{}_T{}_D{}", args.batch, args.heads, args.queries, args.head_columns);
  if (args.lse_row() != args.queries) name += fmt::format("_S{}", args.lse_row());
  return name;
}

void add(std::vector<KernelCase>& cases, const AttentionMerge& args, core::DType dtype) {
  cases.push_back(case_of(shaped(args, dtype)));
}

// batch, heads, queries, head_columns, lse_stride
constexpr std::array kTestShapes{AttentionMerge{1, 1, 1, 1},      AttentionMerge{2, 3, 17, 8},
                                 AttentionMerge{1, 2, 64, 64},    AttentionMerge{1, 1, 127, 31},
                                 AttentionMerge{2, 2, 33, 5, 70}, AttentionMerge{1, 3, 9, 128, 18},
                                 AttentionMerge{1, 1, 1031, 40}};
constexpr std::array kBenchShapes{AttentionMerge{1, 4, 1024, 64}, AttentionMerge{1, 12, 4096, 64, 8192},
                                  AttentionMerge{1, 32, 8192, 128}};

}  // namespace

KernelCase case_of(const AttentionMerge& args) {
  return make_shaped_case(args, {.shape = name_of(args),
                                 .dtype = args.o.dtype,
                                 .draws = {{"lse", {.scale = 3}}, {"part_lse", {.scale = 3}}},
                                 .terms = {{"o", 2}, {"lse", 2}}});
}

std::vector<KernelCase> attention_merge_test_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (const AttentionMerge& shape : kTestShapes) add(cases, shape, dtype);
  }
  return cases;
}

std::vector<KernelCase> attention_merge_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const AttentionMerge& shape : kBenchShapes) add(cases, shape, dtype);
  }
  return cases;
}

}  // namespace lockstep::kernels
