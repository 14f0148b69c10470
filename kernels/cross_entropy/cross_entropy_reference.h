// Reference: plain loops, for tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/base/operands.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace lockstep::kernels {

// One row's maximum, its numerators exp(logit - maximum), their sum over the valid columns, and the target's logit if
// the target is in these columns.
template <class S>
struct RowStats {
  std::vector<S> numerators;
  S max = S(-std::numeric_limits<double>::infinity());
  S sum = S(0);
  S target_logit = S(0);
};

template <class S>
RowStats<S> row_stats_reference(std::span<const S> logits, std::int64_t target) {
  using std::exp;
  RowStats<S> stats;
  for (const S& logit : logits) {
    if (logit > stats.max) stats.max = logit;
  }
  // Without columns, or if all are -inf, the sum is 0 and not NaN, so that other shards' columns can still be merged.
  const bool finite = stats.max > S(-std::numeric_limits<double>::infinity());
  for (const S& logit : logits) {
    stats.numerators.push_back(exp(logit - (finite ? stats.max : S(0))));
    stats.sum += stats.numerators.back();
  }
  if (target >= 0 && target < static_cast<std::int64_t>(logits.size())) {
    stats.target_logit = logits[static_cast<std::size_t>(target)];
  }
  return stats;
}

template <class S>
S row_loss_reference(const RowStats<S>& stats) {
  using std::log;
  return log(stats.sum) + (stats.max - stats.target_logit);
}

// Writes the gradient; `numerators` has one per valid column.
template <class S>
void row_gradient_reference(std::span<S> logits, std::int64_t target, const std::vector<S>& numerators, S sum,
                            float scale) {
  for (std::size_t c = 0; c < logits.size(); ++c) {
    const S one_at_target = S(static_cast<std::int64_t>(c) == target ? 1 : 0);
    logits[c] = c < numerators.size() ? S(scale) * (numerators[c] / sum - one_at_target) : S(0);
  }
}

template <class S>
void reference(const CrossEntropy& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  for (std::size_t n = 0; n < static_cast<std::size_t>(args.rows); ++n) {
    const std::span<S> row = data["logits"].subspan(n * columns, columns);
    const std::int64_t target = integer_of(data["targets"][n]);
    const auto stats = row_stats_reference<S>(row.first(static_cast<std::size_t>(args.valid_columns)), target);
    data["losses"][n] = row_loss_reference(stats);
    row_gradient_reference(row, target, stats.numerators, stats.sum, args.scale);
  }
}

template <class S>
void reference(const CrossEntropyStats& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  for (std::size_t n = 0; n < static_cast<std::size_t>(args.rows); ++n) {
    const std::span<S> row = data["logits"].subspan(n * columns, columns);
    const std::int64_t target = integer_of(data["targets"][n]) - args.first_id;
    const auto stats = row_stats_reference<S>(row.first(static_cast<std::size_t>(args.valid_columns)), target);
    data["stats"][3 * n] = stats.max;
    data["stats"][3 * n + 1] = stats.sum;
    data["stats"][3 * n + 2] = stats.target_logit;
  }
}

// Merges one token's stats of all shards, [shard][rows][3], into one.
template <class S>
RowStats<S> merged_reference(std::span<const S> stats, std::int64_t shards, std::int64_t rows, std::size_t n) {
  using std::exp;
  RowStats<S> all;
  const auto of_shard = [&](std::int64_t s) { return stats.subspan(3 * (static_cast<std::size_t>(s * rows) + n), 3); };
  for (std::int64_t s = 0; s < shards; ++s) {
    if (of_shard(s)[0] > all.max) all.max = of_shard(s)[0];
  }
  for (std::int64_t s = 0; s < shards; ++s) {
    all.sum += of_shard(s)[1] * exp(of_shard(s)[0] - all.max);
    all.target_logit += of_shard(s)[2];
  }
  return all;
}

template <class S>
void reference(const CrossEntropyFinish& args, ReferenceData<S>& data) {
  using std::exp;
  const auto columns = static_cast<std::size_t>(args.columns);
  for (std::size_t n = 0; n < static_cast<std::size_t>(args.rows); ++n) {
    const std::span<S> row = data["logits"].subspan(n * columns, columns);
    const std::int64_t target = integer_of(data["targets"][n]) - args.first_id;
    const auto stats = merged_reference<S>(data["stats"], args.shards, args.rows, n);
    data["losses"][n] = row_loss_reference(stats);
    std::vector<S> numerators;
    for (const S& logit : row.first(static_cast<std::size_t>(args.valid_columns))) {
      numerators.push_back(exp(logit - stats.max));
    }
    row_gradient_reference(row, target, numerators, stats.sum, args.scale);
  }
}

}  // namespace lockstep::kernels
