// Reference: plain loops, for tests.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/attention_merge/attention_merge.h"
#include "kernels/base/reference_data.h"

namespace lockstep::kernels {

// The parts' shares of the whole, and its log-sum-exp: that of the part with the larger one plus a correction.
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

}  // namespace lockstep::kernels
