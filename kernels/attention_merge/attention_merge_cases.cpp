// Cases, and the reference: plain loops, for tests.
#include "kernels/attention_merge/attention_merge.h"

#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "kernels/base/kernel_case.h"
#include "kernels/base/operands.h"
#include "kernels/registry.h"

namespace lockstep::kernels {

// The parts' shares of the whole, and its log-sum-exp: the larger one plus a correction.
template <class S>
struct MergeShares {
  S lse;
  S first;
  S second;
};
template <class S>
MergeShares<S> merge_shares_reference(S lse, S part_lse) {
  using std::exp;
  using std::log;
  const bool second_is_larger = part_lse > lse;
  const S larger = second_is_larger ? part_lse : lse;
  const S smaller = second_is_larger ? lse : part_lse;
  const S share = exp(smaller - larger);
  const S sum = S(1) + share;
  const S of_larger = S(1) / sum;
  const S of_smaller = share / sum;
  const S merged = larger + log(sum);
  return {merged, second_is_larger ? of_smaller : of_larger, second_is_larger ? of_larger : of_smaller};
}

template <class S>
void reference(const AttentionMerge& args, ReferenceData<S>& data) {
  const S none = S(-std::numeric_limits<double>::infinity());
  for (std::int64_t row = 0; row < args.rows(); ++row) {
    const std::int64_t head = row % args.heads;
    const std::int64_t query = row / args.heads % args.queries;
    const std::int64_t line = row / args.heads / args.queries * args.heads + head;
    S& lse = data["lse"][static_cast<std::size_t>(line * args.lse_row() + query)];
    const S part_lse = data["part_lse"][static_cast<std::size_t>(line * args.queries + query)];
    if (part_lse == none) continue;
    const bool is_first = lse == none;
    const MergeShares<S> shares =
        is_first ? MergeShares<S>{part_lse, S(0), S(1)} : merge_shares_reference<S>(lse, part_lse);
    lse = shares.lse;
    for (std::int64_t c = row * args.head_columns; c < (row + 1) * args.head_columns; ++c) {
      S& o = data["o"][static_cast<std::size_t>(c)];
      const S part = data["part_o"][static_cast<std::size_t>(c)];
      o = is_first ? part : shares.first * o + shares.second * part;
    }
  }
}

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
  return cases_of(kActivationDTypes, kTestShapes, add);
}

std::vector<KernelCase> attention_merge_bench_cases() {
  return cases_of(kBenchDTypes, kBenchShapes, add);
}

}  // namespace lockstep::kernels
