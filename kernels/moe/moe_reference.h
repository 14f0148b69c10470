// Reference: plain loops, for tests. The integers of a case (a dropped copy, a row without a copy) do not change its
// FLOPs: such rows are read as zeros, or their results are discarded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/operands.h"
#include "kernels/gemm/gemm_reference.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/moe/permute.h"
#include "kernels/moe/router.h"

namespace lockstep::kernels {

template <class S>
void set_integer(S& to, std::int64_t value) {
  to = S(static_cast<double>(value));
}

template <class S>
std::vector<S> router_scores(const RouterShape& shape, std::span<S> logits) {
  using std::exp;
  std::vector<S> scores(logits.begin(), logits.end());
  if (shape.scores == RouterScores::sigmoid) {
    for (S& score : scores) score = S(1) / (S(1) + exp(-score));
    return scores;
  }
  const S top = *std::max_element(logits.begin(), logits.end());
  S sum(0);
  for (S& score : scores) sum += score = exp(score - top);
  for (S& score : scores) score /= sum;
  return scores;
}

// Gives experts outside the `limit` best groups keys that are never chosen.
template <class S>
void limit_groups_reference(const RouterShape& shape, std::vector<S>& keys) {
  if (!shape.is_limited()) return;
  const std::size_t size = keys.size() / static_cast<std::size_t>(shape.groups);
  std::vector<S> sums;
  for (std::size_t first = 0; first < keys.size(); first += size) {
    std::vector<S> group(keys.begin() + static_cast<std::ptrdiff_t>(first),
                         keys.begin() + static_cast<std::ptrdiff_t>(first + size));
    std::sort(group.begin(), group.end(), [](const S& a, const S& b) { return b < a; });
    S sum(0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape.scored_of_group()); ++i) sum += group[i];
    sums.push_back(sum);
  }
  for (std::size_t e = 0; e < keys.size(); ++e) {
    const std::size_t own = e / size;
    std::int64_t better = 0;
    for (std::size_t g = 0; g < sums.size(); ++g) {
      if (sums[own] < sums[g] || (g < own && !(sums[g] < sums[own]))) ++better;
    }
    if (better >= shape.limit) keys[e] = S(-1e30);
  }
}

template <class S>
void reference(const RouterForward& args, ReferenceData<S>& data) {
  const auto experts = static_cast<std::size_t>(args.shape.experts);
  const auto top_k = static_cast<std::size_t>(args.shape.top_k);
  for (std::size_t t = 0; t < static_cast<std::size_t>(args.shape.tokens); ++t) {
    const std::vector<S> scores = router_scores<S>(args.shape, data["logits"].subspan(t * experts, experts));
    std::vector<S> keys = scores;
    for (std::size_t e = 0; args.with_bias && e < experts; ++e) keys[e] += data["bias"][e];
    limit_groups_reference(args.shape, keys);
    const auto choices = data["choices"].subspan(t * top_k, top_k);
    for (S& choice : choices) {
      const auto best = std::max_element(keys.begin(), keys.end());
      set_integer(choice, best - keys.begin());
      *best = S(-1e30);
    }
    const auto score_of = [&](std::size_t j) { return scores[static_cast<std::size_t>(integer_of(choices[j]))]; };
    S sum(0);
    for (std::size_t j = 0; args.shape.normalised && j < top_k; ++j) sum += score_of(j);
    for (std::size_t j = 0; j < top_k; ++j) {
      S& gate = data["gates"][t * top_k + j];
      gate = score_of(j) / (args.shape.normalised ? sum : S(1));
      gate *= S(args.shape.scale);
    }
  }
}

// Adds the derivatives of a token's probabilities and of log(sum of exp(logits))^2 / 2, times the slopes from above.
template <class S>
void router_backward_row(const RouterBackward& args, std::span<S> logits, const std::vector<S>& scores,
                         const std::vector<S>& slopes, std::span<S> d_logits) {
  using std::exp;
  using std::log;
  if (args.shape.scores == RouterScores::sigmoid) {
    for (std::size_t e = 0; e < scores.size(); ++e) d_logits[e] = slopes[e] * (scores[e] * (S(1) - scores[e]));
    return;
  }
  S mean(0);
  for (std::size_t e = 0; e < scores.size(); ++e) mean += scores[e] * slopes[e];
  // p = exp(l) / sum, so that log(sum) is l - log(p); taken at the largest p, which is not tiny.
  const auto top = std::max_element(logits.begin(), logits.end());
  const S log_sum = *top - log(scores[static_cast<std::size_t>(top - logits.begin())]);
  const S z = S(args.z_scale) * log_sum;
  for (std::size_t e = 0; e < scores.size(); ++e) d_logits[e] = scores[e] * (slopes[e] - mean + z);
}

template <class S>
void reference(const RouterBackward& args, ReferenceData<S>& data) {
  const auto experts = static_cast<std::size_t>(args.shape.experts);
  const auto top_k = static_cast<std::size_t>(args.shape.top_k);
  for (std::size_t t = 0; t < static_cast<std::size_t>(args.shape.tokens); ++t) {
    const auto logits = data["logits"].subspan(t * experts, experts);
    const std::vector<S> scores = router_scores<S>(args.shape, logits);
    std::vector<S> slopes(experts, S(0));
    for (std::size_t e = 0; args.balance_scale != 0 && e < experts; ++e) {
      slopes[e] = S(args.balance_scale) * data["counts"][e];
    }
    const auto choice = [&](std::size_t j) {
      return static_cast<std::size_t>(integer_of(data["choices"][t * top_k + j]));
    };
    S sum(0);
    for (std::size_t j = 0; j < top_k; ++j) sum += scores[choice(j)];
    S mean(0);
    for (std::size_t j = 0; j < top_k; ++j) mean += data["d_gates"][t * top_k + j] * (scores[choice(j)] / sum);
    for (std::size_t j = 0; j < top_k; ++j) {
      const S slope = data["d_gates"][t * top_k + j];
      const S through = args.shape.normalised ? (slope - mean) / sum : slope;
      slopes[choice(j)] += through * S(args.shape.scale);
    }
    router_backward_row<S>(args, logits, scores, slopes, data["d_logits"].subspan(t * experts, experts));
  }
}

template <class S>
void reference(const RouterLoads& args, ReferenceData<S>& data) {
  using std::log;
  const auto experts = static_cast<std::size_t>(args.shape.experts);
  std::vector<std::int64_t> counts(experts);
  for (const S& choice : data["choices"]) ++counts[static_cast<std::size_t>(integer_of(choice))];
  for (std::size_t e = 0; e < experts; ++e) set_integer(data["counts"][e], counts[e]);
  for (S& probability : data["probabilities"]) probability = S(0);
  data["z"][0] = S(0);
  for (std::size_t t = 0; t < static_cast<std::size_t>(args.shape.tokens); ++t) {
    const auto logits = data["logits"].subspan(t * experts, experts);
    const std::vector<S> scores = router_scores<S>(args.shape, logits);
    for (std::size_t e = 0; e < experts; ++e) data["probabilities"][e] += scores[e];
    const auto top = std::max_element(logits.begin(), logits.end());
    const S log_sum = *top - log(scores[static_cast<std::size_t>(top - logits.begin())]);
    data["z"][0] += log_sum * log_sum;
  }
}

template <class S>
void reference(const AssignSlots& args, ReferenceData<S>& data) {
  const auto choice_of = [&](std::int64_t copy) { return integer_of(data["choices"][static_cast<std::size_t>(copy)]); };
  for (S& copy : data["copies"]) set_integer(copy, -1);
  std::int64_t first = 0;
  for (std::int64_t e = 0; e < args.experts; ++e) {
    std::int64_t count = 0;
    for (std::int64_t j = 0; j < args.top_k; ++j) {
      for (std::int64_t c = j; c < args.num_copies(); c += args.top_k) {
        if (choice_of(c) != e) continue;
        const bool kept = args.capacity == 0 || count < args.capacity;
        set_integer(data["slots"][static_cast<std::size_t>(c)], kept ? first + count : -1);
        if (kept) set_integer(data["copies"][static_cast<std::size_t>(first + count)], c);
        ++count;
      }
    }
    set_integer(data["counts"][static_cast<std::size_t>(e)], count);
    first += args.capacity == 0 ? count : args.capacity;
  }
}

// Returns row `index` of an array, or `elsewhere` if the index is -1.
template <class S>
std::span<S> row_or(std::span<S> rows, std::int64_t index, std::vector<S>& elsewhere) {
  return index < 0 ? std::span<S>(elsewhere)
                   : rows.subspan(static_cast<std::size_t>(index) * elsewhere.size(), elsewhere.size());
}

template <class S>
void reference(const Permute& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  std::vector<S> zeros(columns, S(0));
  for (std::size_t r = 0; r < static_cast<std::size_t>(args.rows); ++r) {
    const std::int64_t copy = integer_of(data["copies"][r]);
    const auto from = row_or<S>(data["x"], copy < 0 ? -1 : copy / args.top_k, zeros);
    std::copy(from.begin(), from.end(), data["y"].subspan(r * columns, columns).begin());
  }
}

template <class S>
void reference(const Unpermute& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  const auto top_k = static_cast<std::size_t>(args.top_k);
  std::vector<S> zeros(columns, S(0));
  for (std::size_t copy = 0; copy < static_cast<std::size_t>(args.tokens) * top_k; ++copy) {
    const auto row = row_or<S>(data["y"], integer_of(data["slots"][copy]), zeros);
    for (std::size_t c = 0; c < columns; ++c) {
      S& out = data["out"][copy / top_k * columns + c];
      const S term = args.with_gates ? data["gates"][copy] * row[c] : row[c];
      out = copy % top_k == 0 ? term : out + term;
    }
  }
}

template <class S>
void reference(const UnpermuteBackward& args, ReferenceData<S>& data) {
  const auto columns = static_cast<std::size_t>(args.columns);
  const auto top_k = static_cast<std::size_t>(args.top_k);
  std::fill(data["dy"].begin(), data["dy"].end(), S(0));
  for (std::size_t copy = 0; copy < static_cast<std::size_t>(args.tokens) * top_k; ++copy) {
    std::vector<S> zeros(columns, S(0));
    std::vector<S> thrown_away(columns, S(0));
    const std::int64_t slot = integer_of(data["slots"][copy]);
    const auto row = row_or<S>(data["y"], slot, zeros);
    const auto dy = row_or<S>(data["dy"], slot, thrown_away);
    S sum(0);
    for (std::size_t c = 0; c < columns; ++c) {
      const S d_out = data["d_out"][copy / top_k * columns + c];
      sum += d_out * row[c];
      dy[c] = data["gates"][copy] * d_out;
    }
    data["d_gates"][copy] = sum;
  }
}

// Calls visit(group, data of the group's product, back); back(name, whole array, first element) returns the results.
template <class S, class Group, class Fill, class Take>
void for_each_group(const GroupedShape& shape, const std::vector<Group>& groups, const Fill& fill, const Take& take) {
  std::size_t next = 0;
  std::size_t first = 0;
  for (std::size_t g = 0; g < shape.groups(); ++g) {
    const auto rows = static_cast<std::size_t>(shape.rows[g]);
    if (rows == 0) continue;
    ReferenceData<S> part;
    fill(part, g, first, rows);
    reference(groups[next++], part);
    take(part, g, first);
    first += rows;
  }
}

template <class S>
std::vector<S> copy_of(std::span<S> all, std::size_t first, std::size_t count) {
  const auto part = all.subspan(first, count);
  return {part.begin(), part.end()};
}
template <class S>
void put(std::span<S> part, std::span<S> all, std::size_t first) {
  std::copy(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(first));
}
template <class S>
std::vector<S> whole_of(ReferenceData<S>& data, const char* name, std::size_t group) {
  const auto all = data[name + std::to_string(group)];
  return {all.begin(), all.end()};
}

template <class S>
void reference(const GroupedGemmForward& args, ReferenceData<S>& data) {
  const auto inputs = static_cast<std::size_t>(args.shape.inputs);
  const auto outputs = static_cast<std::size_t>(args.shape.outputs);
  for_each_group<S>(
      args.shape, groups_of(args),
      [&](ReferenceData<S>& part, std::size_t g, std::size_t first, std::size_t rows) {
        part.add("x", copy_of<S>(data["x"], first * inputs, rows * inputs));
        part.add("w", whole_of(data, "w", g));
        if (args.epilogue != Epilogue::none) part.add("bias", whole_of(data, "bias", g));
        if (args.epilogue == Epilogue::bias_gelu) part.add("pre", std::vector<S>(rows * outputs, S(0)));
        part.add("y", std::vector<S>(rows * outputs, S(0)));
      },
      [&](ReferenceData<S>& part, std::size_t, std::size_t first) {
        put<S>(part["y"], data["y"], first * outputs);
        if (args.epilogue == Epilogue::bias_gelu) put<S>(part["pre"], data["pre"], first * outputs);
      });
}

template <class S>
void reference(const GroupedGemmInputGradient& args, ReferenceData<S>& data) {
  const auto inputs = static_cast<std::size_t>(args.shape.inputs);
  const auto outputs = static_cast<std::size_t>(args.shape.outputs);
  for_each_group<S>(
      args.shape, groups_of(args),
      [&](ReferenceData<S>& part, std::size_t g, std::size_t first, std::size_t rows) {
        part.add("dy", copy_of<S>(data["dy"], first * outputs, rows * outputs));
        part.add("w", whole_of(data, "w", g));
        if (args.through_gelu) part.add("pre", copy_of<S>(data["pre"], first * inputs, rows * inputs));
        part.add("dx", std::vector<S>(rows * inputs, S(0)));
      },
      [&](ReferenceData<S>& part, std::size_t, std::size_t first) { put<S>(part["dx"], data["dx"], first * inputs); });
}

template <class S>
void reference(const GroupedGemmWeightGradient& args, ReferenceData<S>& data) {
  const auto inputs = static_cast<std::size_t>(args.shape.inputs);
  const auto outputs = static_cast<std::size_t>(args.shape.outputs);
  for_each_group<S>(
      args.shape, groups_of(args),
      [&](ReferenceData<S>& part, std::size_t g, std::size_t first, std::size_t rows) {
        part.add("x", copy_of<S>(data["x"], first * inputs, rows * inputs));
        part.add("dy", copy_of<S>(data["dy"], first * outputs, rows * outputs));
        part.add("dw", whole_of(data, "dw", g));
        if (args.with_bias) part.add("dbias", whole_of(data, "dbias", g));
      },
      [&](ReferenceData<S>& part, std::size_t g, std::size_t) {
        put<S>(part["dw"], data["dw" + std::to_string(g)], 0);
        if (args.with_bias) put<S>(part["dbias"], data["dbias" + std::to_string(g)], 0);
      });
}

}  // namespace lockstep::kernels
