#include "kernels/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_reference.h"
#include "kernels/base/kernel_case.h"
#include "testing/kernels/attention_shapes.h"

namespace lockstep::kernels {
namespace {

std::string name_of(const AttentionShape& shape) {
  std::string name = fmt::format("B{}_H{}_T{}_D{}", shape.batch, shape.heads, shape.queries, shape.head_columns);
  if (shape.keys != shape.queries) name += fmt::format("_K{}", shape.keys);
  if (!shape.causal) name += "_full";
  if (shape.stride() != shape.row()) name += fmt::format("_S{}", shape.stride());
  if (shape.group() > 1) name += fmt::format("_G{}", shape.group());
  return name;
}

std::int64_t packed_elems(const AttentionShape& shape) {
  return shape.batch * shape.queries * shape.row();
}

// Sets o and lse of the backward to the results of the forward.
std::function<void(ReferenceData<double>&)> forward_results(const AttentionShape& shape) {
  return [shape](ReferenceData<double>& data) {
    ReferenceData<double> forward;
    for (const char* name : {"q", "k", "v"}) {
      forward.add(name, std::vector<double>(data[name].begin(), data[name].end()));
    }
    forward.add("o", std::vector<double>(static_cast<std::size_t>(packed_elems(shape))));
    forward.add("lse", std::vector<double>(static_cast<std::size_t>(shape.batch * shape.heads * shape.queries)));
    reference(AttentionForward{.shape = shape}, forward);
    for (const char* name : {"o", "lse"}) {
      std::copy(forward[name].begin(), forward[name].end(), data[name].begin());
    }
  };
}

// Terms of a sum over keys, or over the queries of a group, of weights that are themselves sums over columns.
std::int64_t terms_of(const AttentionShape& shape) {
  return shape.keys + shape.head_columns;
}
std::int64_t key_terms_of(const AttentionShape& shape) {
  return std::max(shape.keys, shape.group() * shape.queries) + shape.head_columns;
}

void add(std::vector<KernelCase>& cases, const AttentionShape& shape, core::DType dtype) {
  cases.push_back(case_of(shaped(AttentionForward{.shape = shape}, dtype)));
  cases.push_back(case_of(shaped(AttentionBackward{.shape = shape}, dtype)));
}

}  // namespace

KernelCase case_of(const AttentionForward& args) {
  const std::int64_t terms = terms_of(args.shape);
  return make_shaped_case(args, {.shape = name_of(args.shape),
                                 .dtype = args.q.dtype,
                                 .terms = {{"o", terms}, {"lse", terms}},
                                 .rounded_factors = {"o"}});
}

KernelCase case_of(const AttentionBackward& args) {
  const std::int64_t terms = terms_of(args.shape);
  const std::int64_t key_terms = key_terms_of(args.shape);
  return make_shaped_case(args, {.shape = name_of(args.shape),
                                 .dtype = args.q.dtype,
                                 .terms = {{"dq", terms}, {"dk", key_terms}, {"dv", key_terms}},
                                 .rounded_factors = {"dq", "dk", "dv"},
                                 .derive = forward_results(args.shape)});
}

std::vector<KernelCase> attention_test_cases() {
  return cases_of(kActivationDTypes, kAttentionTestShapes, add);
}

std::vector<KernelCase> attention_bench_cases() {
  constexpr std::array kShapes{
      AttentionShape{8, 4, 128, 128, 64, true, 0, 768}, AttentionShape{4, 12, 64, 64, 64, true, 0, 2304},
      AttentionShape{1, 12, 1024, 1024, 64, true, 0, 2304}, AttentionShape{8, 12, 1024, 1024, 64, true, 0, 2304},
      AttentionShape{1, 32, 1024, 1024, 128, true, 0, 6144, 8}};
  constexpr std::array kLongShapes{AttentionShape{1, 4, 16384, 16384, 128, true, 0, 0, 2},
                                   AttentionShape{1, 4, 16384, 16384, 64}};
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const AttentionShape& shape : kShapes) add(cases, shape, dtype);
  }
  for (const AttentionShape& shape : kLongShapes) add(cases, shape, core::DType::bf16);
  return cases;
}

}  // namespace lockstep::kernels
